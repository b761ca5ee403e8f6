from tasks_app.web import diffs

CHANGED = b"""\
diff --git a/src/a.py b/src/a.py
index 1..2 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,3 @@ def f():
 one
-two
+zwei
 three
diff --git a/new file.txt b/new file.txt
new file mode 100644
--- /dev/null
+++ b/new file.txt
@@ -0,0 +1 @@
+hello
\\ No newline at end of file
"""


def test_lines_carry_the_numbers_of_both_sides():
    first, _ = diffs.read(CHANGED).files
    assert [(line.kind, line.old, line.new, line.text) for line in first.lines] == [
        ("hunk", None, None, "def f():"),
        ("same", 1, 1, "one"),
        ("del", 2, None, "two"),
        ("add", None, 2, "zwei"),
        ("same", 3, 3, "three"),
    ]


def test_files_say_what_became_of_them():
    first, second = diffs.read(CHANGED).files
    assert (first.path, first.note, first.added, first.removed) == ("src/a.py", "", 1, 1)
    assert (second.path, second.note, second.added, second.removed) == ("new file.txt", "new", 1, 0)


def test_totals_are_added_up():
    diff = diffs.read(CHANGED)
    assert (diff.added, diff.removed) == (2, 1)


def test_a_renamed_file_keeps_its_old_name():
    data = b"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"
    (only,) = diffs.read(data).files
    assert (only.was, only.path, only.note) == ("x", "y", "renamed")


def test_a_binary_file_has_no_lines():
    data = b"diff --git a/x.bin b/x.bin\nindex 1..2\nBinary files a/x.bin and b/x.bin differ\n"
    (only,) = diffs.read(data).files
    assert (only.note, only.lines) == ("binary", [])


def test_lines_of_a_file_that_look_like_headers_stay_lines():
    data = b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- looks like a header\n+++ so does this\n same\n"
    (only,) = diffs.read(data).files
    assert [line.text for line in only.lines[1:]] == ["-- looks like a header", "++ so does this", "same"]


def test_a_long_file_is_folded_and_a_long_line_cut():
    body = b"".join(b"+line\n" for _ in range(1000)) + b"+" + b"x" * 10_000 + b"\n"
    (only,) = diffs.read(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,1001 @@\n" + body).files
    assert len(only.lines) == diffs.LINES_SHOWN
    assert only.hidden == 1002 - diffs.LINES_SHOWN
    assert only.added == 1001


def test_bytes_that_are_no_text_are_replaced():
    (only,) = diffs.read(b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+\xff\xfe\n").files
    assert "\ufffd" in only.lines[1].text


def test_nothing_changed_is_an_empty_diff():
    assert diffs.read(b"").files == ()


def test_more_files_than_are_shown_are_said_to_be_cut():
    data = b"".join(b"diff --git a/%d b/%d\n" % (number, number) for number in range(diffs.FILES_SHOWN + 1))
    diff = diffs.read(data)
    assert len(diff.files) == diffs.FILES_SHOWN
    assert diff.cut
