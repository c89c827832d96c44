"""Downloads against a server on 127.0.0.1 that is cut, lies, or is not there."""

import hashlib

import pytest
from publisher import Publisher

from lnbnn.data import download as module
from lnbnn.data.download import check_archive, download
from lnbnn.data.published import Archive
from lnbnn.errors import DatasetError

CONTENT = hashlib.shake_128(b"content").digest(700_000)
ARCHIVE = Archive("set.zip", len(CONTENT), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")


@pytest.fixture
def publisher(monkeypatch):
    monkeypatch.setattr(module, "_PAUSES_S", (0.0, 0.0))
    server = Publisher(CONTENT)
    yield server
    server.close()


def get(publisher, folder, archive=ARCHIVE):
    return download(publisher.url, archive, folder, lambda *args: None)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file(publisher, tmp_path):
    stages = []
    path = download(publisher.url, ARCHIVE, tmp_path, lambda *args: stages.append(args[0]))
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["set.zip"]
    assert publisher.asked == [None]
    assert set(stages) == {"downloading (MB)", "checking (MB)"}


def test_a_cut_connection_goes_on_where_it_was(publisher, tmp_path):
    publisher.cuts = [300_000, 100_000]
    assert get(publisher, tmp_path).read_bytes() == CONTENT
    assert publisher.asked == [None, "bytes=300000-", "bytes=400000-"]


def test_a_part_of_an_earlier_run_is_used(publisher, tmp_path):
    (tmp_path / "set.zip.part").write_bytes(CONTENT[:123_456])
    assert get(publisher, tmp_path).read_bytes() == CONTENT
    assert publisher.asked == ["bytes=123456-"]


def test_when_nothing_more_comes_the_part_is_kept(publisher, tmp_path):
    publisher.cuts = [5_000, 0, 0, 0]
    with pytest.raises(DatasetError, match=r"at 5,000 of 700,000 bytes, which are kept in .*set\.zip\.part; run"):
        get(publisher, tmp_path)
    assert (tmp_path / "set.zip.part").read_bytes() == CONTENT[:5_000]
    assert get(publisher, tmp_path).read_bytes() == CONTENT


def test_a_server_without_ranges_begins_again(publisher, tmp_path):
    publisher.ranges = False
    publisher.cuts = [300_000]
    assert get(publisher, tmp_path).read_bytes() == CONTENT
    assert publisher.asked == [None, "bytes=300000-"]


def test_a_part_that_is_too_long_is_begun_again(publisher, tmp_path):
    (tmp_path / "set.zip.part").write_bytes(CONTENT + b"more")
    assert get(publisher, tmp_path).read_bytes() == CONTENT
    assert publisher.asked == [None]


def test_a_wrong_checksum_leaves_nothing(publisher, tmp_path):
    publisher.content = CONTENT[:-1] + b"?"
    with pytest.raises(DatasetError, match=r"expected the sha256 checksum \w{64}; got \w{64}\. What .* been removed"):
        get(publisher, tmp_path)
    assert names(tmp_path) == []


def test_a_damaged_part_is_found_out_by_the_checksum(publisher, tmp_path):
    (tmp_path / "set.zip.part").write_bytes(b"?" * 1000)
    with pytest.raises(DatasetError, match="run the command again"):
        get(publisher, tmp_path)
    assert get(publisher, tmp_path).read_bytes() == CONTENT


def test_another_size_is_refused_before_it_is_downloaded(publisher, tmp_path):
    publisher.content = CONTENT + b"more"
    with pytest.raises(DatasetError, match="expected a file of 700,000 bytes; the server offers one of 700,004"):
        get(publisher, tmp_path)
    assert names(tmp_path) == []


def test_not_found(publisher, tmp_path):
    publisher.status = 404
    with pytest.raises(DatasetError, match=r"set\.zip: the server answered 404 Not Found"):
        get(publisher, tmp_path)
    assert names(tmp_path) == []
    assert len(publisher.asked) == 1


def test_a_server_in_trouble_is_tried_again(publisher, tmp_path):
    publisher.status = 503
    with pytest.raises(DatasetError, match="503 Service Unavailable"):
        get(publisher, tmp_path)
    assert len(publisher.asked) == 3


def test_no_network(publisher, tmp_path):
    publisher.close()
    with pytest.raises(DatasetError, match=r"127\.0\.0\.1:\d+ cannot be reached"):
        get(publisher, tmp_path)
    (tmp_path / "set.zip.part").write_bytes(CONTENT[:10])
    with pytest.raises(DatasetError, match="at 10 of 700,000 bytes, which are kept"):
        get(publisher, tmp_path)


def test_check_by_md5(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    check_archive(path, Archive("file", 3, "md5:900150983cd24fb0d6963f7d28e17f72"), lambda *args: None)
    with pytest.raises(DatasetError, match="expected 4 bytes; got 3"):
        check_archive(path, Archive("file", 4, "md5:900150983cd24fb0d6963f7d28e17f72"), lambda *args: None)
    with pytest.raises(DatasetError, match="expected the md5 checksum 0; got 9001"):
        check_archive(path, Archive("file", 3, "md5:0"), lambda *args: None)
