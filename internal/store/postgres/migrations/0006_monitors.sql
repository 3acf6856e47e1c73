-- Monitors watch work that is done elsewhere.
CREATE TABLE belfry.monitors (
    id           uuid PRIMARY KEY,
    namespace    text NOT NULL,
    name         text NOT NULL,
    token        uuid NOT NULL UNIQUE,
    spec         text NOT NULL,
    last_ping_at timestamptz,
    started_at   timestamptz,
    failed_at    timestamptz,
    due_at       timestamptz,
    alert_at     timestamptz, -- from when on it is late or failed
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    UNIQUE (namespace, name)
);

CREATE INDEX monitors_list ON belfry.monitors (namespace, id);
CREATE INDEX monitors_alert ON belfry.monitors (alert_at) WHERE alert_at IS NOT NULL;
