-- What handlers write to the logs of their attempts, in pieces as it comes. The newest
-- 64 KiB of an attempt are kept, as long as its run.
CREATE TABLE belfry.attempt_logs (
    run_id     uuid NOT NULL,
    attempt    integer NOT NULL,
    start      bigint NOT NULL, -- bytes of the log before this piece
    stop       bigint NOT NULL, -- and with it
    shard      integer NOT NULL,
    namespace  text NOT NULL,
    updated_at timestamptz NOT NULL,
    text       text NOT NULL,
    PRIMARY KEY (run_id, attempt, start)
);
