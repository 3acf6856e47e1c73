-- Where alerts are sent. The spec is JSON.
CREATE TABLE belfry.channels (
    namespace   text NOT NULL,
    name        text NOT NULL,
    spec        text NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    sent_at     timestamptz,
    failures    integer NOT NULL DEFAULT 0, -- since then
    error       text NOT NULL DEFAULT '',
    next_try_at timestamptz,
    PRIMARY KEY (namespace, name)
);

-- What channels are told. The columns repeat parts of the body, which is JSON.
CREATE TABLE belfry.alerts (
    id            uuid PRIMARY KEY,
    namespace     text NOT NULL,
    channel       text NOT NULL,
    key           text NOT NULL, -- the same for what is one alert
    status        text NOT NULL,
    version       bigint NOT NULL,
    latest_at     timestamptz NOT NULL,
    body          text NOT NULL,
    send_at       timestamptz, -- null: there is nothing to send
    claimed_until timestamptz,
    sent_at       timestamptz,
    sent_count    integer NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX alerts_open ON belfry.alerts (namespace, channel, key) WHERE status <> 'resolved';
CREATE INDEX alerts_list ON belfry.alerts (namespace, id);
CREATE INDEX alerts_recent ON belfry.alerts (latest_at);
CREATE INDEX alerts_send ON belfry.alerts (send_at) WHERE send_at IS NOT NULL;

-- Jobs whose last attempts failed, until one succeeds.
CREATE TABLE belfry.failing (
    job_id    uuid PRIMARY KEY,
    namespace text NOT NULL,
    since     timestamptz NOT NULL,
    latest_at timestamptz NOT NULL,
    failures  bigint NOT NULL,
    run_id    uuid NOT NULL,
    error     text NOT NULL
);
CREATE INDEX failing_list ON belfry.failing (namespace, job_id);

-- What did not succeed, or not within a minute: few of all.
CREATE INDEX history_exceptions ON belfry.history (settled_at) WHERE state <> 'succeeded' OR settled_at - scheduled_at > interval '1 minute';
CREATE INDEX dead_age ON belfry.dead (died_at);
