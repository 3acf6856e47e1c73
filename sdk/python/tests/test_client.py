import json, pathlib, shutil, ssl, tempfile, typing, unittest, urllib.request

import belfry
from belfry import ApiError, Client, Unavailable

from . import server


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.address = server.start()

    def setUp(self) -> None:
        self.client = self.connect(self.address)

    def connect(self, address: str, **options: typing.Any) -> Client:
        client = Client(address, **{"namespace": self._testMethodName.replace("_", "-"), **options})
        self.addCleanup(client.close)
        return client

    def proxied(self, **options: typing.Any) -> tuple[server.Proxy, Client]:
        proxy = server.Proxy(self.address)
        self.addCleanup(proxy.close)
        return proxy, self.connect(proxy.address, **options)

    def test_life_of_a_job(self) -> None:
        c = self.client
        job = c.create_job({"name": "report", "schedule": "0 9 * * *", "payload": {"pages": 3}, "tags": ["a", "b"]})
        self.assertEqual((job["name"], job["type"], job["status"], job["revision"]), ("report", "worker", "scheduled", 1))
        self.assertEqual(c.get_job(job["job_id"]), c.get_job("report"))
        self.assertEqual(c.patch_job("report", {"schedule": "0 10 * * *"})["revision"], 2)
        self.assertEqual(c.put_job("report", {"schedule": "0 10 * * *", "payload": {"pages": 4}})["payload"], {"pages": 4})
        self.assertEqual(c.pause_job("report")["status"], "paused")
        self.assertEqual([j["name"] for j in c.list_jobs({"status": "paused"}) if "name" in j], ["report"])
        self.assertEqual(c.resume_job("report", catch_up=True)["status"], "scheduled")
        run = c.trigger_job("report", {"pages": 5})
        server.eventually(lambda: "fired_at" in c.get_run(run), "the run is fired")
        self.assertEqual([r["run_id"] for r in c.list_runs({"job": "report"})], [run])
        self.assertRaises(TimeoutError, c.wait_run, run, timeout=0.2)
        self.assertEqual(c.cancel_run(run)["status"], "cancelled")
        self.assertEqual(c.wait_run(run)["status"], "cancelled")
        c.delete_job("report", cancel_runs=True, delete_history=True)
        self.assertEqual(list(c.list_jobs()), [])

    def test_tls_with_a_ca_file(self) -> None:
        data = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, data)
        address = server.start("--tls-auto", data=data)
        self.assertTrue(address.startswith("https://"))
        trusting = self.connect(address, ssl_context=ssl.create_default_context(cafile=data + "/tls-cert.pem"))
        self.assertEqual(list(trusting.list_jobs()), [])
        with self.assertRaises(Unavailable) as refused:
            list(self.connect(address).list_jobs())
        self.assertIsInstance(refused.exception.__cause__, ssl.SSLCertVerificationError)

    def test_keys_are_not_sent_in_the_clear(self) -> None:
        for address in ("http://belfry.example.com", "10.0.0.1:7070", "http://127.0.0.1.example.com", "http://xlocalhost"):
            with self.assertRaisesRegex(ValueError, "insecure_plain_http=True"):
                Client(address, key="k")
            Client(address)
            Client(address, key="k", insecure_plain_http=True)
        for address in ("http://127.0.0.1:7070", "localhost:7070", "http://[::1]:7070", "http://a.LOCALHOST", "https://10.0.0.1"):
            Client(address, key="k")

    def test_names_are_escaped(self) -> None:
        for name in ("a/b c?d#e%2Fé", "x" * 200):
            self.client.put_job(name, {"handler": "h", "schedule": "@daily"})
            self.assertEqual(self.client.get_job(name).get("name"), name)
            self.client.delete_job(name)
        self.assertRaises(ValueError, self.client.get_job, "")

    def test_errors_are_problem_documents(self) -> None:
        with self.assertRaises(ApiError) as invalid:
            self.client.create_job({"handler": "h", "schedule": "61 * * * *", "max_retries": 1000})
        e = invalid.exception
        self.assertEqual((e.status, e.code, e.detail), (422, "invalid", "the job is not valid"))
        self.assertEqual(sorted(f.field for f in e.fields), ["max_retries", "schedule"])
        self.assertIn("schedule: ", str(e))
        self.assertTrue(e.request_id)
        with self.assertRaises(ApiError) as missing:
            self.client.get_job("nobody")
        self.assertEqual((missing.exception.status, missing.exception.code), (404, "not_found"))
        self.client.create_job({"name": "taken", "schedule": "@daily"})
        with self.assertRaises(ApiError) as taken:
            self.client.create_job({"name": "taken", "schedule": "@daily"})
        self.assertEqual(taken.exception.code, "conflict")

    def test_idempotency_key(self) -> None:
        first = self.client.create_job({"handler": "h", "schedule": "@daily"}, idempotency_key="once")
        self.assertEqual(self.client.create_job({"handler": "h", "schedule": "@daily"}, idempotency_key="once")["job_id"], first["job_id"])
        runs = {self.client.trigger_job(first["job_id"], idempotency_key="now") for _ in range(3)}
        self.assertEqual(len(runs), 1)

    def test_lists_have_pages(self) -> None:
        ids = [self.client.create_job({"handler": "h", "schedule": "@daily", "tags": ["x"]})["job_id"] for _ in range(120)]
        self.assertEqual([job["job_id"] for job in self.client.list_jobs({"tags": ["x"]})], ids[::-1])

    def test_namespaces_are_apart(self) -> None:
        self.client.put_job("mine", {"handler": "h", "schedule": "@daily"})
        other = self.connect(self.address + "/api/v1/", namespace="elsewhere")
        self.assertRaises(ApiError, other.get_job, "mine")

    def test_key(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder, "keys")
            keys.touch(0o600)
            keys.write_text("ops:9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA\n")
            address = server.start("--api-key-file", str(keys))
            self.assertEqual(list(self.connect(address, key="9f8Kq27ZtR4mWx8LbVn3JcYd6HsPeuTA").list_jobs()), [])
            with self.assertRaises(ApiError) as refused:
                list(self.connect(address).list_jobs())
        self.assertEqual((refused.exception.status, refused.exception.code), (401, "unauthorized"))

    def test_addresses_and_keys_are_checked(self) -> None:
        for bad in ("ftp://x", "http://", "http://me:secret@host", "http://host/?a=1"):
            self.assertRaises(ValueError, Client, bad)
        with self.assertRaises(ValueError) as error:
            Client("localhost:7070", key="se\ncret")
        self.assertNotIn("cret", str(error.exception))
        self.assertNotIn("secret", repr(Client("localhost:7070", key="secret")))

    def test_calls_are_repeated(self) -> None:
        proxy, client = self.proxied()
        for fault in ("refuse", "lose", 503, 429):
            faults = [fault]
            proxy.fault = lambda path: faults.pop() if faults else ""
            proxy.seen.clear()
            job = client.create_job({"handler": "h", "schedule": "@daily"})
            keys = {headers["Idempotency-Key"] for _, headers in proxy.seen}
            self.assertEqual((len(proxy.seen), len(keys)), (2, 1), fault)
            self.assertEqual([j["job_id"] for j in self.client.list_jobs()], [job["job_id"]], fault)
            faults.append(fault)
            client.delete_job(job["job_id"])
            self.assertEqual(list(self.client.list_jobs()), [], fault)

    def test_the_number_of_tries_is_limited(self) -> None:
        proxy, client = self.proxied(retries=1)
        proxy.fault = lambda path: "refuse"
        self.assertRaises(Unavailable, client.get_job, "x")
        proxy.fault = lambda path: 503
        with self.assertRaises(ApiError) as busy:
            client.get_job("x")
        self.assertEqual((busy.exception.status, busy.exception.code), (503, "unavailable"))
        self.assertEqual(len(proxy.seen), 4)
        proxy.fault = lambda path: 404
        self.assertRaises(ApiError, client.get_job, "x")
        self.assertEqual(len(proxy.seen), 5)

    def test_timeout(self) -> None:
        proxy, client = self.proxied(retries=0, timeout=0.2)
        proxy.fault = lambda path: "hang"
        self.assertRaises(Unavailable, client.get_job, "x")

    def test_closed_connections_are_not_used_again(self) -> None:
        proxy, client = self.proxied(retries=0)
        client.put_job("x", {"handler": "h", "schedule": "@daily"})
        target, client._connections._idle = client._connections._idle, []
        for _, connection in target:
            connection.sock.shutdown(2)
        client._connections._idle = target
        self.assertEqual(client.get_job("x").get("name"), "x")

    def test_answers_of_other_servers(self) -> None:
        proxy, client = self.proxied()
        proxy.fault = lambda path: 200
        self.assertRaises(belfry.BelfryError, client.get_job, "x")

    def test_types_have_the_fields_of_the_api(self) -> None:
        with urllib.request.urlopen(self.address + "/api/v1/openapi.json") as answer:
            schemas = json.load(answer)["components"]["schemas"]
        for kind, name in ((belfry.Manifest, "Manifest"), (belfry.Job, "Job"), (belfry.RunRecord, "Run"), (belfry.Attempt, "Attempt"),
                           (belfry.LastResult, "LastResult"), (belfry.RunLog, "RunLog"), (belfry.JobFilter, "JobFilter")):
            self.assertEqual(set(typing.get_type_hints(kind)), set(schemas[name]["properties"]), name)
            self.assertLessEqual(set(schemas[name].get("required", [])), set(kind.__required_keys__), name)
            for field, hint in typing.get_type_hints(kind).items():
                schema = schemas[name]["properties"][field]
                schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
                if typing.get_origin(hint) is typing.Literal:
                    self.assertLessEqual(set(schema["enum"]), set(typing.get_args(hint)), f"{name}.{field}")


if __name__ == "__main__":
    unittest.main()
