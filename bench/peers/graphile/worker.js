// Works off no-op jobs with graphile-worker and prints one line of JSON; bench/peers runs it as
//   node worker.js <database URL> <number of jobs>
"use strict";
const { Pool } = require("pg");
const { Logger, runMigrations, runOnce } = require("graphile-worker");

// The settings of the project's performance page and perfTest, with more concurrent jobs, which is faster on two cores.
const concurrentJobs = 100;
const worker = {
  concurrentJobs,
  maxPoolSize: concurrentJobs + 1,
  localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

const seconds = (since) => Number(process.hrtime.bigint() - since) / 1e9;

async function main(url, jobs) {
  const logger = new Logger(() => (level, message) => {
    if (level === "error" || level === "warning") console.error(message);
  });
  const preset = { worker: { ...worker, connectionString: url, logger } };
  await runMigrations({ preset });
  const pool = new Pool({ connectionString: url, max: 1 });

  const inserting = process.hrtime.bigint();
  const specs = Array.from({ length: jobs }, (_, id) => ({ identifier: "noop", payload: { id } }));
  await pool.query(
    "select 1 from graphile_worker.add_jobs(array(select json_populate_recordset(null::graphile_worker.job_spec, $1::json)))",
    [JSON.stringify(specs)],
  );
  const insert_seconds = seconds(inserting);

  let handled = 0;
  const working = process.hrtime.bigint();
  await runOnce({ preset, taskList: { noop: () => void handled++ } }); // returns when the queue is empty
  const result = {
    version: require("graphile-worker/package.json").version,
    insert_seconds,
    seconds: seconds(working),
  };
  const left = Number((await pool.query("select count(*) from graphile_worker._private_jobs")).rows[0].count);
  await pool.end();
  if (handled !== jobs || left !== 0) throw new Error(`handled ${handled} of ${jobs} jobs, ${left} are left in the queue`);
  console.log(JSON.stringify(result));
}

main(process.argv[2], Number(process.argv[3])).catch((error) => {
  console.error(error);
  process.exit(1);
});
