"""Fit on a few views of each photograph, ask about new ones, and draw why.

`python examples/quickstart.py`
"""

from lnbnn import LocalNBNN
from lnbnn.data.toy import load_photos, make_views
from lnbnn.trust.evidence import explain
from lnbnn.trust.figures import evidence_figure, save_figure

photos = {name: photo for name, photo in load_photos().items() if name in ("cat", "coffee", "coins", "page")}
reference = make_views(photos, 3, seed=0, clutter=False)
queries = make_views(photos, 2, seed=1, clutter=True)

classifier = LocalNBNN(n_neighbors=10).fit([image for _, image in reference], [name for name, _ in reference])
answers = classifier.predict([image for _, image in queries])
right = sum(answer == name for answer, (name, _) in zip(answers, queries, strict=True))
print(f"{right} of {len(queries)} right")

evidence = explain(classifier, queries[0][1], label="cat", against="coffee")
save_figure(evidence_figure(queries[0][1], evidence), "why.png")
