#!/usr/bin/env python3
"""Builds all test programs of the workspace, and runs as many of them at a time as AT_A_TIME says, or one more than CPUs.

    run-tests.py [CARGO [WORDS]]

Method: many tests wait, for a server, a disk or a clock, and cargo runs one program after the other. Each program runs as
under `cargo test`: in its package's directory, with the same variables. Its output is shown when it has ended, and what
failed is shown once more at the end. The CPU time told is that of a program and of those that it waited for, without
servers. Those that took longest the last time begin first (`.work/test-seconds.json`, or LONGEST where there is none). Two
run alone, after all others. WORDS choose programs whose names contain one of them.

Where at most UNSTEADY tests failed they run once more, alone. One that passes then is reported as UNSTEADY, with what it
said before: it is a defect, of the test or of the product, which shows under load only. Exit status: 0 if all tests passed
or were unsteady, 1 if one failed, cargo's own if building failed.

Leaves to others: the tests' tools (setup.sh), and how many tests of one program run at a time (RUST_TEST_THREADS).
"""

import concurrent.futures, functools, json, os, subprocess, sys, time

ALONE = ("blockcache test cached", "longshore test cache")
"""Programs that mount loop devices: another program that makes a mount namespace meanwhile keeps those busy."""

LONGEST = {
    "crates/longshore test postgres_backup": 700,
    "crates/longshore test postgres_restore": 500,
    "crates/longshore test cli": 450,
    "crates/longshore test wal": 300,
    "crates/longshore test bucket": 300,
    "crates/longshore test serve": 190,
    "crates/lab/simulator lib longshore_simulator": 130,
    "crates/longshore test memory": 160,
    "crates/core/media test bucket": 150,
    "crates/longshore test packages": 110,
    "crates/longshore test sql_chain": 105,
    "crates/core/media test protection": 93,
    "crates/core/wal test archive": 90,
    "crates/core/pipeline test faults": 90,
    "crates/core/repository test buckets": 70,
    "crates/longshore bin longshore": 64,
    "crates/core/pipeline test offload": 60,
    "crates/sql/tsql lib longshore_tsql": 58,
    "crates/core/pipeline test power_cut": 50,
    "crates/longshore test kill": 45,
    "crates/core/repository test power_cut": 41,
    "crates/sql/tsql test memory": 36,
    "crates/core/accel lib longshore_accel": 35,
    "crates/core/media test parity": 32,
    "crates/core/landing lib longshore_landing": 31,
    "crates/core/media test witnesses": 30,
}
"""Seconds of the programs that take long on two CPUs. One of the first among them that began last would run alone for
minutes; elsewhere only their order matters."""

UNSTEADY = 2
"""More tests that fail in one run are no accident."""

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECONDS = f"{ROOT}/.work/test-seconds.json"


def built(cargo):
    """The test programs: package's directory, name, path."""
    command = [cargo, "test", "--workspace", "--all-targets", "--no-run", "--message-format=json-render-diagnostics"]
    build = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    found = []
    for line in build.stdout:
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            package = os.path.dirname(message["manifest_path"])
            kind, name = message["target"]["kind"][0], message["target"]["name"]
            name = f"{os.path.relpath(package, ROOT)} {kind} {name}"
            found.append((package, name, message["executable"]))
    if build.wait():
        sys.exit(build.returncode)
    return found


@functools.cache
def sysroot():
    return subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True).stdout.strip()


def environment(package, program):
    deps = os.path.dirname(program)
    libraries = [deps, os.path.dirname(deps), f"{sysroot()}/lib", os.environ.get("LD_LIBRARY_PATH", "")]
    return dict(os.environ, CARGO_MANIFEST_DIR=package, LD_LIBRARY_PATH=":".join(filter(None, libraries)))


def run(test, *words):
    package, name, program = test
    began = time.monotonic()
    job = subprocess.Popen([program, *words], cwd=package, env=environment(package, program), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = job.stdout.read().decode(errors="replace")
    _, status, used = os.wait4(job.pid, 0)
    job.returncode = os.waitstatus_to_exitcode(status)
    return name, job.returncode, output, time.monotonic() - began, used.ru_utime + used.ru_stime


def why(output):
    """What a program that failed says of it: its last list of failures, or its last lines if it died without one."""
    told = output.rfind("\nfailures:\n\n---- ")
    return output[told:].strip() if told >= 0 else "\n".join(output.splitlines()[-40:])


def failures(output):
    """The names of the tests that failed; none if the program died without a list."""
    _, told, names = output.rpartition("\nfailures:\n    ")
    return [line.strip() for line in names.split("\n\n")[0].splitlines()] if told else []


def pass_alone(tests, failed):
    """The programs whose few failures pass when they run once more, with nothing next to them."""
    names = {name: failures(output) for name, output in failed.items()}
    if not all(names.values()) or sum(map(len, names.values())) > UNSTEADY:
        return []
    passed = []
    for test in (test for test in tests if test[1] in names):
        again = names[test[1]]
        _, code, output, *_ = run(test, "--exact", "--test-threads=1", *again)
        # A name that no test has would pass, too.
        if code == 0 and f"test result: ok. {len(again)} passed" in output:
            passed.append(test[1])
    return passed


def main():
    cargo, words = (sys.argv[1:] + ["cargo"])[0], sys.argv[2:]
    began = time.monotonic()
    tests = [test for test in built(cargo) if not words or any(word in test[1] for word in words)]
    ready = time.monotonic()
    try:
        seconds = json.load(open(SECONDS))
    except (OSError, ValueError):
        seconds = {}
    # What is unknown comes before what is known to be short.
    seconds = {**LONGEST, **seconds}
    tests.sort(key=lambda test: -seconds.get(test[1], 20 if "longshore test" in test[1] else 10))
    most = int(os.environ.get("AT_A_TIME") or (os.cpu_count() or 1) + 1)
    alone = [test for test in tests if test[1].endswith(ALONE)]
    outputs, took, cpu = {}, {}, 0
    for group, at_a_time in (([test for test in tests if test not in alone], most), (alone, 1)):
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            for job in concurrent.futures.as_completed([pool.submit(run, test) for test in group]):
                name, code, output, wall, used = job.result()
                took[name] = round(wall, 1)
                cpu += used
                word = "passed" if code == 0 else f"FAILED, exit status {code}"
                print(f"\n==== {name}: {word} in {wall:.1f} s, {used:.1f} s of CPU\n{output.strip()}", flush=True)
                if code:
                    outputs[name] = output
    unsteady = pass_alone(tests, outputs)
    failed = [name for name in outputs if name not in unsteady]
    os.makedirs(os.path.dirname(SECONDS), exist_ok=True)
    with open(SECONDS, "w") as file:
        json.dump({**seconds, **took}, file, indent=1)
    print(f"\n{len(tests)} test programs: {len(failed)} failed, {len(unsteady)} unsteady; built in {ready - began:.0f} s,"
          f" run in {time.monotonic() - ready:.0f} s, {sum(took.values()):.0f} s one after the other, {cpu:.0f} s of CPU")
    for word, names in (("UNSTEADY", unsteady), ("FAILED", failed)):
        for name in names:
            print(f"\n  {word} {name}\n{why(outputs[name])}")
    sys.exit(bool(failed))


main()
