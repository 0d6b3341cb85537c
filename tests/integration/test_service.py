"""The verb `serve`: real server processes, whose evaluators are simulated unless a test says otherwise."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support import relu
from support.command import ROOT, refusal_without, until

pytest.importorskip("fastapi", reason="the package fastapi is not installed")
from support.service import REAL, Server

from kernel_harness.client import Client
from kernel_harness.core.errors import EnvironmentLacking, NotFound, UserError
from kernel_harness.core.status import Status
from kernel_harness.problem.errors import ProblemError

CAPACITY = 4  # of one evaluator without a GPU: one is judged, three are built
Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def started(*arguments: str, **more: Any) -> Server:
        servers.append(Server(tmp_path, *arguments, **more))
        servers[-1].start()
        return servers[-1]

    yield started
    for server in servers:
        server.kill()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for tests that leave nothing in its queue."""
    with Server(tmp_path_factory.mktemp("shared"), "--max-body", "100000", "--body-timeout", "0.5") as server:
        yield server


def occupy(server: Server, gate: Path, **more: Any) -> list[str]:
    """The jobs of candidates that hold the evaluator until there is a file `gate`."""
    return [server.submit(f"hold {gate} {n}", **more)["id"] for n in range(CAPACITY)]


def tokens(tmp_path: Path, **owners: str) -> Path:
    path = tmp_path / "tokens"
    path.write_text("# owner token\n" + "".join(f"{owner} {token}\n" for owner, token in owners.items()))
    path.chmod(0o600)
    return path


# ------------------------------------------------------------------------------------------------ jobs


def test_a_submission_gets_its_verdict(shared: Server) -> None:
    job = shared.done(shared.submit("pass 2")["id"])

    assert (job["state"], job["reward"], job["result"]["status"]) == ("done", 1.8, "PASSED")
    assert shared.done(shared.submit("wrong")["id"])["reward"] == 0


def test_an_answer_has_no_seed_and_no_sample(shared: Server) -> None:
    result = shared.done(shared.submit("pass 2")["id"])["result"]

    assert result["settings"]["seed"] == 0  # the simulated evaluator's is 1
    assert result["timing"]["samples_ms"] == [] and result["timing"]["time"]["estimate"] == 2


def test_equal_work_is_judged_once_however_often_and_by_whomever_it_is_submitted(start: Start, tmp_path: Path) -> None:
    path = tokens(tmp_path, ann="a" * 16, bob="b" * 16)
    server = start("--tokens", str(path))
    with ThreadPoolExecutor(16) as threads:
        clients = [server.client(token=letter * 16) for letter in "ab" * 20]
        results = list(threads.map(lambda client: client.evaluate("p", "pass 3"), clients))

    assert {result.status for result in results} == {Status.PASSED}
    assert server.judged == 1
    assert server.client(token="a" * 16, quick=True).evaluate("p", "pass 3").passed  # other options, other work
    assert server.client(token="a" * 16).evaluate("q", "pass 3").passed  # another problem
    assert server.judged == 3


def test_a_source_of_odd_characters_is_judged(shared: Server) -> None:
    for source in ("pass 2 \0 nothing", "pass 2 \U0001f600"):
        assert shared.done(shared.submit(source)["id"])["state"] == "done"


def test_events_tell_each_state_and_end(start: Start, tmp_path: Path) -> None:
    server, gate = start(), tmp_path / "gate"
    occupy(server, gate)
    last = server.submit("pass 2")["id"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", f"/v1/jobs/{last}/events")
    answer = connection.getresponse()
    assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    first = [answer.readline().decode() for _ in range(3)]
    gate.touch()
    rest = answer.read().decode()

    assert first[0] == "event: queued\n" and json.loads(first[1].removeprefix("data: "))["ahead"] == 0
    assert [line for line in rest.splitlines() if line.startswith("event")][-1] == "event: done"


def test_a_waiting_job_tells_its_place_and_a_cancelled_one_is_not_judged(start: Start, tmp_path: Path) -> None:
    server, gate = start(), tmp_path / "gate"
    server.done(server.submit("pass 1")["id"])  # so that there is a time to estimate from
    running = occupy(server, gate)
    jobs = [server.submit(f"pass 2 {n}") for n in range(3)]
    assert [job["ahead"] for job in jobs] == [0, 1, 2]
    assert all(job["estimate_s"] > 0 for job in jobs)
    assert server.ask("DELETE", f"/v1/jobs/{jobs[1]['id']}")[2]["state"] == "cancelled"
    gate.touch()
    for job_id in [*running, jobs[0]["id"], jobs[2]["id"]]:
        assert server.done(job_id)["state"] == "done"

    assert server.judged == 1 + CAPACITY + 2
    assert server.done(jobs[1]["id"])["state"] == "cancelled"
    again = server.submit("pass 2 1")
    assert again["id"] == jobs[1]["id"] and server.done(again["id"])["state"] == "done"


def test_a_batch_answers_each_submission_in_order(shared: Server) -> None:
    submissions = [{"problem": "p", "source": f"pass {n % 7 + 1}"} for n in range(200)]
    submissions[5] = {"problem": "nowhere", "source": "pass 1"}
    code, _, answer = shared.ask("POST", "/v1/batches", {"submissions": submissions})

    assert code == 200
    assert "no problem 'nowhere'" in answer["jobs"][5]["error"]
    ids = [job["id"] for job in answer["jobs"] if "id" in job]
    assert len(ids) == 199 and len(set(ids)) == 7 and ids[0] == ids[199 - 4]
    assert [shared.done(each)["reward"] for each in ids[:3]] == pytest.approx([0.9, 1.8, 2.7])


def test_a_problem_that_cannot_be_used_fails_and_is_tried_again_when_it_is_submitted_again(start: Start) -> None:
    server = start()
    for attempt in (1, 2):
        with pytest.raises(ProblemError, match="the reference fails"):
            server.client().evaluate("p", "unusable")
        assert server.judged == attempt


# --------------------------------------------------------------------------------- an end and a new start


def test_a_killed_server_loses_nothing_and_judges_no_finished_work_again(start: Start, tmp_path: Path) -> None:
    server, gate = start(), tmp_path / "gate"
    finished = [server.submit(f"pass 2 {n}")["id"] for n in range(3)]
    for job_id in finished:
        server.done(job_id)
    unfinished = [*occupy(server, gate), *(server.submit(f"pass 3 {n}")["id"] for n in range(5))]
    until(lambda: server.judged == 4, "the evaluator begins the first one that holds")
    server.kill()
    gate.touch()
    server.start()

    assert [server.done(each)["state"] for each in unfinished] == ["done"] * 9
    assert server.judged == 3 + 1 + 9  # only the one that was being judged is judged again
    assert [server.state(each) for each in finished] == ["done"] * 3


def test_a_draining_server_ends_what_is_judged_and_takes_nothing_new(start: Start, tmp_path: Path) -> None:
    server, gate = start(), tmp_path / "gate"
    running = occupy(server, gate)
    waiting = server.submit("pass 3")["id"]
    server.terminate()
    until(lambda: server.ask("GET", "/healthz")[0] == 503, "the server drains")
    code, headers, answer = server.ask("POST", "/v1/jobs", {"problem": "p", "source": "pass 4"})
    assert code == 503 and int(headers["retry-after"]) > 0 and "takes no more work" in answer["error"]
    gate.touch()
    assert server.process is not None and server.process.wait(60) == 0
    assert server.judged == CAPACITY
    server.start()

    assert [server.state(each) for each in running] == ["done"] * CAPACITY
    assert server.done(waiting)["state"] == "done"


def test_a_client_goes_on_when_the_server_is_killed_and_started_again(start: Start, tmp_path: Path) -> None:
    server, gate = start(), tmp_path / "gate"
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(server.client().evaluate, "p", f"hold {gate}")
        many = threads.submit(
            lambda: dict(server.client().evaluate_many(("p", f"pass {n % 9 + 1}") for n in range(300)))
        )
        until(lambda: server.judged, "the evaluator begins")
        for _ in range(2):
            server.kill()
            server.start()
        gate.touch()

        assert one.result().passed
        found = many.result()
    assert sorted(found) == list(range(300)) and all(result.passed for result in found.values())
    assert server.judged <= 10 + 2 * CAPACITY


def test_a_job_at_which_three_servers_end_fails_and_the_jobs_beside_it_do_not(start: Start, tmp_path: Path) -> None:
    server, gate = start(), tmp_path / "gate"
    held = [server.submit(f"hold {gate} {n}")["id"] for n in range(2)]
    job = server.submit("lacking")["id"]
    beside = server.submit("pass 2")["id"]
    gate.touch()
    for _ in range(2):
        assert server.process is not None and server.process.wait(60) == 4
        assert "too little memory" in server.errors.read_text()
        server.launch()
    assert server.process is not None and server.process.wait(60) == 4
    server.start()

    failed = server.done(job)
    assert failed["state"] == "failed" and "too little memory" in failed["error"]
    assert [server.done(each)["state"] for each in (*held, beside)] == ["done"] * 3


def test_two_servers_do_not_share_a_folder(start: Start) -> None:
    server = start()
    second = subprocess.run(
        [sys.executable, *server.arguments, "--port", "0"], cwd=server.here, env=server.environment,
        capture_output=True, text=True,
    )  # fmt: skip

    assert second.returncode == 2 and "another server uses" in second.stderr


# ------------------------------------------------------------------------------------------- limits


def test_a_full_queue_is_answered_by_429_with_a_time(start: Start, tmp_path: Path) -> None:
    server, gate = start("--queue", "2"), tmp_path / "gate"
    occupy(server, gate)
    for n in range(2):
        server.submit(f"pass 2 {n}")
    code, headers, answer = server.ask("POST", "/v1/jobs", {"problem": "p", "source": "pass 3"})

    assert code == 429 and int(headers["retry-after"]) > 0 and "2 jobs wait" in answer["error"]
    assert server.submit("pass 2 1")["state"] == "queued"  # what waits already needs no room
    with ThreadPoolExecutor(1) as threads:
        patient = threads.submit(server.client().evaluate, "p", "pass 3")
        gate.touch()
        assert patient.result().passed


def test_a_token_has_its_own_quota_jobs_and_turns(start: Start, tmp_path: Path) -> None:
    path = tokens(tmp_path, ann="a" * 16, bob="b" * 16)
    server, gate = start("--tokens", str(path), "--quota", "6"), tmp_path / "gate"
    ann, bob = {"token": "a" * 16}, {"token": "b" * 16}
    occupy(server, gate, **ann)
    jobs = [server.submit(f"pass 2 {n}", **ann) for n in range(6)]
    assert server.ask("POST", "/v1/jobs", {"problem": "p", "source": "pass 9"}, **ann)[0] == 429
    late = server.submit("pass 8", **bob)

    assert late["ahead"] == 1 and jobs[5]["ahead"] == 5
    assert server.ask("GET", f"/v1/jobs/{jobs[0]['id']}", **bob)[0] == 404
    assert server.ask("DELETE", f"/v1/jobs/{jobs[0]['id']}", **bob)[0] == 404
    gate.touch()
    server.done(late["id"], **bob)


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer wrong", f"Bearer {'a' * 15}", f"Basic {'a' * 16}", "Bearer é"])
def test_without_the_right_token_nothing_is_answered(tmp_path: Path, start: Start, shown: str) -> None:
    server = start(environment={"KERNEL_HARNESS_TOKENS": f"ann {'a' * 16},bob {'b' * 16}"})
    headers = {"Authorization": shown} if shown else {}
    for method, place in [("POST", "/v1/jobs"), ("GET", "/v1/jobs/x"), ("GET", "/v1/problems"), ("GET", "/metrics")]:
        code, _, answer = server.ask(method, place, {"problem": "p", "source": "pass 1"}, headers=headers)
        assert code == 401 and "needs a token" in answer["error"]
    with socket.create_connection(("127.0.0.1", server.port)) as one:  # it is answered before its body has come
        shown_line = f"Authorization: {shown}\r\n".encode() if shown else b""
        one.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n" + shown_line + b"\r\n")
        assert b" 401 " in one.recv(1000)

    assert server.ask("GET", "/healthz")[0] == 200
    assert server.ask("GET", "/v1/problems", token="a" * 16)[2][:2] == ["matmul_tt", "matmul_tt_relu"]
    with pytest.raises(UserError, match="needs a token"):
        server.client(token="wrong").evaluate("p", "pass 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "without tokens the server listens on this machine only"),
        (["--tokens", "{open}"], "others can read"),
        (["--tokens", "{short}"], "at least 16 characters"),
        (["--tokens", "{odd}"], "not of the form: owner token"),
        (["--tokens", "nowhere"], "cannot be read"),
        (["--host", "256.0.0.1"], "cannot listen"),
    ],
)
def test_an_unsafe_start_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    texts = {"open": f"ann {'a' * 16}\n", "short": "ann short\n", "odd": "ann\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "open" else 0o600)
    server = Server(tmp_path, *(word.format(**{name: tmp_path / name for name in texts}) for word in arguments))

    assert server.launch().wait(60) == 2
    assert message in server.errors.read_text()


def test_a_giant_body_is_refused_before_it_has_arrived(shared: Server) -> None:
    code, _, answer = shared.ask("POST", "/v1/jobs", b"x" * 200_000)
    assert code == 413 and "100000 bytes at most" in answer["error"]
    with socket.create_connection(("127.0.0.1", shared.port)) as one:  # a length of 1 TB, of which little is sent
        one.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        one.sendall((b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 2)
        assert b" 413 " in one.recv(1000)


def test_a_slow_body_is_refused(shared: Server) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), timeout=60) as slow:
        slow.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        answer = slow.recv(1000)
    assert b" 408 " in answer


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"])
def test_a_connection_without_a_request_is_closed(shared: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), timeout=60) as slow:
        slow.sendall(sent)
        while slow.recv(1000):
            pass  # the answer to a whole request; then the server closes the connection


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"problem": "/etc/passwd"}, 400, "paths and URLs are not taken"),
        ({"problem": "../problems/p"}, 400, "paths and URLs are not taken"),
        ({"problem": "problems/p.py"}, 400, "paths and URLs are not taken"),
        ({"problem": "http://169.254.169.254/latest"}, 400, "paths and URLs are not taken"),
        ({"problem": "nowhere"}, 404, "no problem 'nowhere'"),
        ({"problem": None}, 400, "give either problem"),
        ({"problem": "p", "problem_text": "import torch\n"}, 400, "give either problem"),
        ({"problem": None, "problem_text": "import torch\n"}, 403, "by name only"),
        ({"problem_sha256": "0" * 64}, 409, "another file than the client's"),
        ({"source": "/etc/passwd"}, 400, "paths and URLs are not taken"),
        ({"source": "kernels/a.py"}, 400, "paths and URLs are not taken"),
        ({"source": "https://example.com/a.py"}, 400, "paths and URLs are not taken"),
        ({"source": "x" * 1_000_001}, 413, "bytes at most"),
        ({"options": {"baseline": "nope"}}, 400, "there is no baseline 'nope'"),
        ({"options": {"precision": "float3"}}, 400, "float3"),
        ({"options": {"timeout_s": -1}}, 422, "timeout_s"),
        ({"options": {"seed": 1}}, 422, "seed"),
        ({"candidate": "x"}, 422, "candidate"),
        ({"problem": "\ud800"}, 422, "problem"),
        ({"source": "pass 2 \ud800"}, 422, "source"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused_by_a_sentence(
    shared: Server, changes: dict[str, Any], code: int, message: str
) -> None:
    found, _, answer = shared.ask("POST", "/v1/jobs", {"problem": "p", "source": "pass 1", **changes})

    assert found == code and message in answer["error"]


def test_what_is_no_json_is_refused(shared: Server) -> None:
    assert shared.ask("POST", "/v1/jobs", b"{")[0] == 422
    assert (
        shared.ask("POST", "/v1/jobs", {"problem": "p", "source": "a"}, headers={"Content-Type": "text/plain"})[0]
        == 422
    )
    assert shared.ask("GET", "/v1/jobs/x")[0] == 404
    assert shared.ask("GET", "/v1/jobs/x?wait_s=1000")[0] == 422
    assert shared.ask("GET", "/healthz", headers={"Host": "elsewhere.example"})[0] == 400


def test_figures_and_the_description_are_served(shared: Server) -> None:
    shared.done(shared.submit("pass 2")["id"])
    shared.submit("pass 2")
    text = shared.ask("GET", "/metrics")[2]
    assert 'kernel_harness_judged_total{kind="PASSED"}' in text and "kernel_harness_waiting_jobs 0\n" in text
    assert 'kernel_harness_submitted_total{kind="stored"}' in text
    assert "/v1/batches" in shared.ask("GET", "/openapi.json")[2]["paths"]


# ------------------------------------------------------------------------------------------ the client


def test_the_client_yields_results_with_the_index_of_their_item(shared: Server) -> None:
    items = [("p", f"pass {n % 5 + 1}" if n % 3 else "wrong") for n in range(400)]
    found = dict(shared.client().evaluate_many(iter(items)))

    assert sorted(found) == list(range(400))
    assert all(found[n].passed == bool(n % 3) for n in found)
    assert shared.client().reward("p", "pass 5") == 4.5


def test_the_client_refuses_what_is_no_server_and_gives_up_after_its_patience(shared: Server, tmp_path: Path) -> None:
    for url in ("127.0.0.1:8930", "ftp://host", "http://user:pass@host"):
        with pytest.raises(UserError, match="is no server"):
            Client(url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EnvironmentLacking, match="no answer from"):
        Client(f"http://127.0.0.1:{port}", patience_s=0.2).evaluate("p", "pass 1")
    with pytest.raises(NotFound, match="no problem 'nowhere'"):
        shared.client().evaluate("nowhere", "pass 1")
    (tmp_path / "problem.py").write_text("import torch\n")
    with pytest.raises(UserError, match="by name only"):
        shared.client().evaluate(tmp_path / "problem.py", "pass 1")


def test_the_client_refuses_a_server_whose_problem_is_another_file(
    shared: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "p.py").write_text("# another p\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UserError, match="another file than the client's"):
        shared.client().evaluate("p", "pass 1")


def test_a_problem_is_judged_as_it_was_when_it_was_submitted(start: Start, tmp_path: Path) -> None:
    server, gate = start("--accept-problem-texts"), tmp_path / "gate"
    held = occupy(server, gate)
    waiting = server.submit("pass 4")["id"]
    (server.here / "problems" / "p.py").write_text("# changed\n")
    changed = server.submit("pass 4")["id"]
    gate.touch()

    assert changed != waiting  # another file, so other work
    for job in (*held, waiting, changed):
        assert server.done(job)["state"] == "done"
    texts = {path.read_text() for path in server.here.glob("results/service/problems/*/p.py")}
    assert texts == {"# p\n", "# changed\n"}
    assert server.client().evaluate(server.here / "problems" / "p.py", "pass 4").passed


# --------------------------------------------------------------------------------------- real evaluators


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("real")
    token_file = tokens(folder, ann="a" * 16)
    server = Server(folder, "--tokens", str(token_file), "--state", str(folder / "state"), program=REAL)
    relu.write(server.here)
    with server:
        yield server


def test_a_real_verdict_hides_what_a_forger_could_use(real: Server) -> None:
    client = real.client(token="a" * 16, quick=True)
    job = client.submit("relu", relu.RIGHT)
    result = real.done(job["id"], token="a" * 16)["result"]

    assert result["status"] == "PASSED" and result["settings"]["quick"] is True
    assert result["settings"]["seed"] == 0 and result["settings"]["cases"] == []
    assert result["timing"]["samples_ms"] == [] and result["measurement"]["own_clock_ms"] == []
    others = [check["shape"] for check in result["checks"] if check["shape"] != result["shape"]]
    assert others and all(shape.keys() == {"size"} for shape in others)


def test_a_candidate_reads_neither_jobs_nor_tokens(real: Server, tmp_path: Path) -> None:
    folder = real.here.parents[1]
    client = real.client(token="a" * 16, quick=True)
    for path in (folder / "state" / "jobs.sqlite", folder / "tokens"):
        assert path.read_bytes()
        looks = f"if len(open({str(path)!r}, 'rb').read()) > 0: raise SystemError('was ' + 'read')"
        found = client.evaluate("relu", relu.KERNEL.format(first=looks, least=0))
        assert "was read" not in found.reason + found.log, found.reason


def test_the_command_prints_the_table_of_a_server(real: Server) -> None:
    words = [sys.executable, str(ROOT / "harness.py"), "relu", "right", "wrong", "--server", real.url]
    environment = {**real.environment, "KERNEL_HARNESS_TOKEN": "a" * 16}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], cwd=real.here, env=environment, capture_output=True, text=True)

    found = run()
    assert found.returncode == 1, found.stderr
    assert "right" in found.stdout and "PASSED" in found.stdout
    assert "wrong: WRONG_VALUES" in found.stdout and "expected 0" in found.stdout
    assert not (real.here / "results" / "relu").exists()
    lines = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert {line["kernel"]: line["status"] for line in lines} == {"right": "PASSED", "wrong": "WRONG_VALUES"}
    refused = run("--seed", "3")
    assert refused.returncode == 2 and "--seed is not possible with --server" in refused.stderr


def test_without_the_packages_the_command_says_what_to_install() -> None:
    assert "pip install fastapi uvicorn" in refusal_without("fastapi", "serve")


def test_the_command_says_at_once_that_there_is_no_server(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        words = [sys.executable, str(ROOT / "harness.py"), "matmul_tt", "tiled", "--server", url]
        found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 4 and f"no server answers at {url}" in found.stderr
    assert "at the server" not in found.stderr
