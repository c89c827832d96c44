"""A model that grows: add a class, correct a label, remove a photo, in a model folder that others may be using.

`python examples/add_a_class.py`
"""

import lnbnn
from lnbnn import LocalNBNN
from lnbnn.data.toy import load_photos, make_views

photos = {name: photo for name, photo in load_photos().items() if name in ("cat", "coffee", "coins", "page")}
views = make_views(photos, 3, seed=0, clutter=False)
queries = make_views({"page": photos["page"]}, 4, seed=1, clutter=True)

# A model of three classes: it has never seen a page of text.
known = [(name, image) for name, image in views if name != "page"]
classifier = LocalNBNN(descriptor_params={"step_px": 12}, index="exact")
classifier.fit([image for _, image in known], [name for name, _ in known]).save("model", overwrite=True)
print("before:", sorted({str(answer) for answer in classifier.predict([image for _, image in queries])}))

# One transaction: the folder has all of this, or none of it.
with lnbnn.edit("model") as model:
    model.add([image for name, image in views if name == "page"], ["page", "page", "coins"])  # the last label is wrong
    wrong = max(image.id for image in model.images)
    model.relabel(wrong, "page")
    model.remove([0])

# A program that has the model open follows when it wants to.
follower = lnbnn.load("model")
print("after:", sorted({str(answer) for answer in follower.predict([image for _, image in queries])}))
