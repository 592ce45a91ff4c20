#!/usr/bin/env python3
"""Certificates of the listener that change on disk, with and without SIGHUP. usage: reload_certificates.py LARDER [NAME]"""
import os
import shutil
import ssl
import subprocess
import sys

from reload_parts import Larder, Upstream, check, config, run, until

WATCHED = "tls: {cert: crt.pem, key: key.pem}\n"


def openssl(*args):
    subprocess.run(("openssl",) + args, check=True, capture_output=True, timeout=60)


def make(folder, name):
    """NAME.crt and NAME.key; returns the certificate as a client sees it."""
    at = os.path.join(folder, name)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=" + name, "-keyout", at + ".key", "-out", at + ".crt")
    with open(at + ".crt", encoding="ascii") as f:
        return ssl.PEM_cert_to_DER_cert(f.read())


def put(folder, name, *what):
    """Makes the files that larder watches those of NAME, as a renewal does: written beside, then renamed."""
    for part, watched in (("crt", "crt.pem"), ("key", "key.pem")):
        if not what or part in what:
            shutil.copyfile(os.path.join(folder, name + "." + part), os.path.join(folder, watched + ".new"))
            os.replace(os.path.join(folder, watched + ".new"), os.path.join(folder, watched))


def shown(larder):
    with larder.client(tls=True) as c:
        check(c.ask()[0] == 200)
        return c.certificate()


def a_new_certificate_is_shown_after_sighup(folder):
    one, two = make(folder, "one"), make(folder, "two")
    put(folder, "one")
    with Upstream("a") as a, Larder(folder, config(a, WATCHED), tls=True) as larder, larder.client(tls=True) as old:
        check(old.ask()[0] == 200 and old.certificate() == one)
        put(folder, "two")
        larder.reload()
        check(shown(larder) == two, "the old certificate is still shown")
        check(old.ask()[0] == 200, "a connection from before does not work any more")


def a_new_certificate_is_found_without_a_signal(folder):
    one, two = make(folder, "one"), make(folder, "two")
    put(folder, "one")
    with Upstream("a") as a, Larder(folder, config(a, WATCHED), tls=True) as larder, larder.client(tls=True) as old:
        check(shown(larder) == one and old.ask()[0] == 200)
        put(folder, "two", "crt")   # for a while the two do not fit
        larder.find("event=certificate_not_reloaded")
        check(shown(larder) == one, "a certificate without its key is shown")
        put(folder, "two", "key")
        until(lambda: shown(larder) == two, "the new certificate")
        check(old.ask()[0] == 200, "a connection from before does not work any more")


def damaged_files_leave_the_old_certificate(folder):
    one, two = make(folder, "one"), make(folder, "two")
    put(folder, "one")
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a, WATCHED), tls=True) as larder:
        for name, text in (("crt.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n"), ("crt.pem", ""), ("key.pem", "no key")):
            put(folder, "one")
            with open(os.path.join(folder, name), "w", encoding="ascii") as f:
                f.write(text)
            said = larder.reload(config(b, WATCHED), "reload_failed")
            check("tls." in said, said)
            check(shown(larder) == one)
            check(larder.ask()[1]["from"] == "a", "half of a configuration was taken over")
        os.unlink(os.path.join(folder, "crt.pem"))
        check("crt.pem" not in larder.reload(None, "reload_failed"), "the name of a file that may be a pasted key")
        check(shown(larder) == one)
        put(folder, "two")
        until(lambda: shown(larder) == two, "the new certificate")
        larder.reload()
        larder.now_from("b")


def a_certificate_is_not_swapped_when_the_rest_is_refused(folder):
    one, two = make(folder, "one"), make(folder, "two")
    put(folder, "one")
    with Upstream("a") as a, Larder(folder, config(a, WATCHED), tls=True) as larder:
        other = "tls: {cert: two.crt, key: two.key}\n"
        bad = config(a, other, ", ca_file: larder.yaml").replace("http:", "https:")
        larder.reload(bad, "reload_failed")
        check(shown(larder) == one, "the certificate of a refused configuration is shown")
        larder.reload(config(a, other))
        check(shown(larder) == two)


def other_files_are_watched_once_they_are_configured(folder):
    one, two, three = make(folder, "one"), make(folder, "two"), make(folder, "three")
    put(folder, "one")
    first = "tls: {cert: one.crt, key: one.key}\n"
    with Upstream("a") as a, Larder(folder, config(a, first), tls=True) as larder:
        check(shown(larder) == one)
        said = larder.reload(config(a, WATCHED))
        check("reload_needs_restart" not in said, said)
        put(folder, "two")
        until(lambda: shown(larder) == two, "the certificate in the files of the new configuration")
        since = len(larder.lines)
        shutil.copyfile(folder + "/three.crt", folder + "/one.crt")
        shutil.copyfile(folder + "/three.key", folder + "/one.key")
        put(folder, "three")
        until(lambda: shown(larder) == three, "the third certificate")
        check("file=one.crt" not in larder.log(since), "files that are not configured any more are read")


def whether_there_is_tls_is_settled_at_start(folder):
    one, two = make(folder, "one"), make(folder, "two")
    put(folder, "one")
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a)) as larder:
        said = larder.reload(config(b, WATCHED))
        check("options=tls.cert" in said, said)
        larder.now_from("b")   # still plain HTTP
        put(folder, "two", "crt")
        check("tls." in larder.reload(config(a, WATCHED), "reload_failed"), "a restart would fail, and nothing says so")
        check(larder.ask()[1]["from"] == "b")
    put(folder, "one")
    with Upstream("a") as a, Upstream("b") as b, Larder(folder, config(a, WATCHED), tls=True) as larder:
        said = larder.reload(config(b))
        check("options=tls.cert" in said, said)
        larder.now_from("b")
        check(shown(larder) == one)
        put(folder, "two")
        until(lambda: shown(larder) == two, "the renewal of a certificate that stays in force")


def check_reads_what_serve_would(folder):
    make(folder, "one"), make(folder, "two")
    openssl("pkey", "-in", folder + "/one.key", "-aes256", "-passout", "pass:word", "-out", folder + "/locked.key")
    with Upstream("a") as a:
        rows = [("tls: {cert: one.crt, key: one.key}\n", "", 0, "is valid"),
                ("tls: {cert: one.crt, key: two.key}\n", "", 3, "tls.key"),
                ("tls: {cert: one.key, key: one.key}\n", "", 3, "tls.cert cannot be read"),
                ("tls: {cert: one.crt, key: one.crt}\n", "", 3, "tls.key cannot be read"),
                ("tls: {cert: one.crt, key: locked.key}\n", "", 3, "without a passphrase"),
                ("", ", ca_file: one.crt", 0, "is valid"),
                ("", ", ca_file: larder.yaml", 3, "upstream up: ca_file cannot be read"),
                ("", ", ca_file: absent.pem", 3, "ca_file")]
        for extra, more, code, words in rows:
            text = config(a, extra, more)
            with open(folder + "/larder.yaml", "w", encoding="ascii") as f:
                f.write(text.replace("http:", "https:") if more else text)
            for command in (["check"], ["config", "check"]) + ((["serve"],) if code else ()):
                done = subprocess.run([Larder.binary] + command + ["-c", "larder.yaml"], cwd=folder, timeout=30,
                                      stdin=subprocess.DEVNULL, capture_output=True, check=False, start_new_session=True)
                said = (done.stdout + done.stderr).decode()
                check(done.returncode == code and words in said, command, extra, more, done.returncode, said)


if not shutil.which("openssl"):
    print("skipped: there is no openssl to make certificates with")
    sys.exit(77)
run([a_new_certificate_is_shown_after_sighup,
     a_new_certificate_is_found_without_a_signal,
     damaged_files_leave_the_old_certificate,
     a_certificate_is_not_swapped_when_the_rest_is_refused,
     other_files_are_watched_once_they_are_configured,
     whether_there_is_tls_is_settled_at_start,
     check_reads_what_serve_would])
