-- Partitions of the history are made and dropped while nodes run, by a role that need not own the tables. The functions have the
-- rights of the role that migrates, and nobody may call them who was not granted it.
CREATE FUNCTION belfry.make_history_partition(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TABLE IF NOT EXISTS belfry.%I PARTITION OF belfry.history FOR VALUES FROM (%L) TO (%L)',
        'history_' || to_char(day, 'YYYY_MM_DD'), day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
END $$;

CREATE FUNCTION belfry.drop_history_partition(day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS belfry.%I', 'history_' || to_char(day, 'YYYY_MM_DD'));
END $$;

REVOKE ALL ON FUNCTION belfry.make_history_partition(date), belfry.drop_history_partition(date) FROM PUBLIC;
