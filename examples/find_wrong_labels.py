"""Find the labels that are wrong: swap a few on purpose, audit the model, correct what it lists.

`python examples/find_wrong_labels.py`
"""

from lnbnn import LocalNBNN
from lnbnn.data.toy import load_photos, make_views
from lnbnn.trust.audit import audit

names = ("astronaut", "cat", "coffee", "coins", "page", "rocket")
photos = {name: photo for name, photo in load_photos().items() if name in names}
views = make_views(photos, 5, seed=0, clutter=False)
labels = [name for name, _ in views]
swapped = {2: "rocket", 11: "astronaut", 23: "cat"}  # the place of a photo, and the label that it gets
for place, label in swapped.items():
    labels[place] = label

classifier = LocalNBNN(descriptor_params={"step_px": 16, "longest_side": 200}, index="exact")
classifier.fit([image for _, image in views], labels)

report = audit(classifier)
for suspect in report.suspects:
    print(f"photo {suspect.id}: {suspect.label} is probably {suspect.suggested}")
    classifier.relabel(suspect.id, suspect.suggested)

corrected = sum(image.label == name for image, (name, _) in zip(classifier.images_, views, strict=True))
print(f"{corrected} of {len(views)} labels right")
