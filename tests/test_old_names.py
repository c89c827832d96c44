"""Old public names give the new ones, with a warning; they do not hide names that never were."""

import numpy as np
import pytest

from lnbnn.classifiers.kernels import LocalNBNNKernel, NBNNKernel
from lnbnn.classifiers.local_nbnn import LocalNBNN
from lnbnn.classifiers.options import make_classifier
from lnbnn.data import folder
from lnbnn.descriptors.dense_sift import DenseSIFT
from lnbnn.errors import InvalidInputError
from lnbnn.lab.tuning import Trial
from lnbnn.model.references_editor import ReferenceEditor
from lnbnn.params import OldName, old_names, renamed_params
from lnbnn.references import Reference
from lnbnn.trust.audit import Stranger


class Thing:
    new = 3
    old = OldName("new")


def test_an_old_attribute_gives_the_new_one_and_names_it():
    thing = Thing()
    thing.new = 4
    with pytest.warns(DeprecationWarning, match="Thing.old is now new; .* removed in 0.4") as said:
        assert thing.old == 4
    assert said[0].filename == __file__, "the line that uses the name"
    with pytest.warns(DeprecationWarning, match="Thing.old"):
        assert Thing.old == 3


def test_a_module_knows_its_old_names_and_no_others():
    find = old_names("lnbnn.data.folder", LabelledImages="LabeledImages")
    with pytest.warns(DeprecationWarning, match="lnbnn.data.folder.LabelledImages is now LabeledImages"):
        assert find("LabelledImages") is folder.LabeledImages
    with pytest.raises(AttributeError, match=r"module 'lnbnn.data.folder' has no attribute 'Everything'"):
        find("Everything")


def test_old_names_of_the_package():
    with pytest.warns(DeprecationWarning, match="LabelledImages") as said:
        from lnbnn.data.folder import LabelledImages
    assert said[0].filename == __file__
    assert LabelledImages is folder.LabeledImages
    editor = ReferenceEditor([Reference(0, "a.png", "a", 9, "ab")], 1, min_descriptors=1, descriptor=DenseSIFT)
    editor.duplicates = [("b.png", 0)]
    with pytest.warns(DeprecationWarning, match="doubles is now duplicates"):
        assert editor.doubles == [("b.png", 0)]
    assert editor.as_json() == {"added": [], "duplicates": [["b.png", 0]], "doubles": [["b.png", 0]], "skipped": []}
    with pytest.warns(DeprecationWarning, match="ms_an_image is now ms_per_image"):
        assert Trial({}, 0.5, 7.0, 1).ms_an_image == 7.0
    assert Trial({}, 0.5, 7.0, 1).as_json()["ms_an_image"] == Trial({}, 0.5, 7.0, 1).as_json()["ms_per_image"] == 7.0
    with pytest.warns(DeprecationWarning, match="prominence is now z_score"):
        assert Stranger(0, "a.png", "a", 2.5, 1).prominence == 2.5


def test_a_descriptor_may_still_use_the_old_spelling():
    with pytest.warns(DeprecationWarning, match="Own.learnt_settings is now learned_settings"):

        class Own(DenseSIFT):
            learnt_settings = frozenset({"min_contrast"})

    assert Own.learned_settings == {"min_contrast"}
    with pytest.warns(DeprecationWarning, match="DenseSIFT.learnt_settings"):
        assert DenseSIFT.learnt_settings == frozenset()


def test_settings_are_renamed_once():
    assert renamed_params({"old": "new"}, {"new": 1, "other": 2}) == {"new": 1, "other": 2}
    with pytest.warns(DeprecationWarning, match="the setting old is now new"):
        assert renamed_params({"old": "new"}, {"old": 1, "other": 2}) == {"new": 1, "other": 2}
    assert renamed_params({"old": "new"}, {"old": 1, "new": 2}) == {"old": 1, "new": 2}, "refused as unknown later"


@pytest.mark.parametrize("kind", [NBNNKernel, LocalNBNNKernel])
def test_the_machine_of_a_kernel_is_its_classifier(kind):
    with pytest.warns(DeprecationWarning, match="the setting machine is now classifier") as said:
        kernel = kind(machine="svm")
    assert said[0].filename == __file__
    assert kernel.get_params()["classifier"] == "svm"
    assert "machine" not in kernel.get_params()
    with pytest.warns(DeprecationWarning, match="machine"):
        assert kernel.set_params(machine="logistic").classifier == "logistic"
    with pytest.raises(TypeError, match="machine"):
        kind(machine="svm", classifier="svm")
    with pytest.raises(TypeError, match="engine"):
        kind(engine="svm")
    with pytest.raises(InvalidInputError, match="machine"):
        LocalNBNN().set_params(machine="svm")


def test_options_know_the_old_name():
    with pytest.warns(DeprecationWarning, match="machine"):
        made = make_classifier(["local-nbnn-kernel"], params={"machine": "svm", "levels": 2})
    assert (made.classifier, made.levels) == ("svm", 2)
    with pytest.raises(InvalidInputError, match="has no machine"):
        make_classifier(["local-nbnn"], params={"machine": "svm"})


def test_the_command_says_that_a_setting_has_a_new_name(tmp_path, save_texture, run_main):
    for kind in ("rows", "checks"):
        for seed in range(3):
            save_texture(tmp_path / "photos" / kind / f"{seed}.png", kind, seed)
    words = ("--method", "nbnn-kernel", "-M", "machine=svm", "-D", "step_px=16")
    outcome = run_main("fit", tmp_path / "photos", tmp_path / "model", *words)
    assert outcome.code == 0
    assert "the setting machine is now classifier" in outcome.err


def test_an_old_attribute_of_a_fitted_kernel():
    rows, columns = np.mgrid[0:64, 0:64]
    images = [(rows // 8 % 2 * 255).astype(np.uint8), (columns // 8 % 2 * 255).astype(np.uint8)]
    images += [images[0][2:], images[1][:, 2:]]
    kernel = NBNNKernel(index="exact", query_budget=50).fit(images, [0, 1, 0, 1])
    with pytest.warns(DeprecationWarning, match="machines_ is now linear_classifier_"):
        assert kernel.machines_ is kernel.linear_classifier_
