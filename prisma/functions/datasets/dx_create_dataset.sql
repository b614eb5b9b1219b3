-- Creates a data set, unless one of this name exists.
--
-- Returns its id. Bound: one row. Locks: the data set; waits for a transaction that creates one of the same name.
CREATE OR REPLACE FUNCTION dx_create_dataset(p_name text, p_now_ms bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_uuid uuid;
BEGIN
  INSERT INTO queue_datasets (dataset_uuid, name, created_at, updated_at)
  VALUES (gen_random_uuid(), p_name, v_now, v_now) ON CONFLICT (name) DO NOTHING
  RETURNING dataset_uuid INTO v_uuid;
  IF v_uuid IS NULL THEN
    SELECT d.dataset_uuid INTO v_uuid FROM queue_datasets AS d WHERE d.name = p_name;
  END IF;
  RETURN v_uuid::text;
END
$$;
