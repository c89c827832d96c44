"""Say "unknown": calibrate a model, and let it refuse photos of classes that it does not know.

`python examples/reject_strangers.py`
"""

from lnbnn import LocalNBNN
from lnbnn.data.toy import load_photos, make_views

photos = load_photos()
known = {name: photos[name] for name in ("astronaut", "cat", "coffee", "coins", "page", "rocket", "moon", "clock")}
strangers = {name: photos[name] for name in ("brick", "gravel", "tissue", "camera")}

reference = make_views(known, 3, seed=0, clutter=False)
classifier = LocalNBNN(descriptor_params={"step_px": 12, "longest_side": 240}, index="exact")
classifier.fit([image for _, image in reference], [name for name, _ in reference])

# Each photo of the model is looked up without itself, and once more without its whole class.
classifier.calibrate(unknown=True)

for title, views in {
    "known classes": make_views(known, 1, seed=1, clutter=True),
    "strangers": make_views(strangers, 2, seed=2, clutter=True),
}.items():
    answers = classifier.predict([image for _, image in views], reject=0.2)
    accepted = [answer for answer in answers if answer is not None]
    print(f"{title}: {len(accepted)} of {len(views)} accepted")
