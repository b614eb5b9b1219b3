-- Turns the table history into one that is partitioned by a hash of instance_id, with all its rows, indexes, rights and
-- its owner. It is one statement, and so one transaction: afterwards either all of it is done or none.
--
-- Run it as the owner of the table. The table is locked exclusively until it is done: turns and reads of histories
-- wait, and fail once their own time is over; processes try again. The lock itself is waited for 10 seconds at most.
--
-- "duroxide" is the schema, 8 the number of partitions, which cannot be changed later; replace them by yours.
DO $partition$
DECLARE
  v_partitions CONSTANT integer := 8;
  v_schema CONSTANT text := '"duroxide"';
  v_table CONSTANT text := v_schema || '.history';
  v_old CONSTANT text := v_schema || '.history_unpartitioned';
  v_kind "char";
  v_owner text;
  v_storage text;
  v_rows bigint;
  v_copied bigint;
  v_index record;
  v_grant record;
BEGIN
  IF v_partitions NOT BETWEEN 2 AND 1024 THEN
    RAISE EXCEPTION 'history can have 2 to 1024 partitions, not %', v_partitions USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF to_regclass(v_schema || '._duroxide_migrations') IS NOT NULL THEN
    RAISE EXCEPTION 'duroxide-pg owns the tables of this schema, and migrates them' USING ERRCODE = 'feature_not_supported';
  END IF;
  PERFORM set_config('lock_timeout', '10s', true);
  EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', v_table);
  SELECT c.relkind, c.relowner::regrole::text, array_to_string(c.reloptions, ', ')
  INTO v_kind, v_owner, v_storage
  FROM pg_class AS c
  WHERE c.oid = v_table::regclass;
  IF v_kind = 'p' THEN
    RAISE EXCEPTION 'history is partitioned already' USING ERRCODE = 'duplicate_table';
  END IF;

  EXECUTE format('ALTER TABLE %s RENAME TO history_unpartitioned', v_table);
  -- The new indexes take the names of the old ones.
  FOR v_index IN
    SELECT i.indexrelid::regclass::text AS name, c.relname AS short
    FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE i.indrelid = v_old::regclass
  LOOP
    EXECUTE format('ALTER INDEX %s RENAME TO %I', v_index.name, left('old_' || v_index.short, 63));
  END LOOP;
  EXECUTE format(
    'CREATE TABLE %s (LIKE %s INCLUDING ALL) PARTITION BY HASH (instance_id)', v_table, v_old
  );
  FOR v_number IN 0 .. v_partitions - 1 LOOP
    EXECUTE format(
      'CREATE TABLE %s_p%s PARTITION OF %s FOR VALUES WITH (MODULUS %s, REMAINDER %s)%s',
      v_table, lpad(v_number::text, 4, '0'), v_table, v_partitions, v_number,
      COALESCE(' WITH (' || v_storage || ')', '')
    );
  END LOOP;

  EXECUTE format('INSERT INTO %s SELECT * FROM %s', v_table, v_old);
  GET DIAGNOSTICS v_copied = ROW_COUNT;
  EXECUTE format('SELECT count(*) FROM %s', v_old) INTO v_rows;
  IF v_copied <> v_rows THEN
    RAISE EXCEPTION '% of % rows of history were copied', v_copied, v_rows;
  END IF;

  FOR v_grant IN
    SELECT
      CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee,
      a.privilege_type AS right,
      a.is_grantable
    FROM pg_class AS c
    CROSS JOIN aclexplode(c.relacl) AS a
    WHERE c.oid = v_old::regclass
  LOOP
    EXECUTE format(
      'GRANT %s ON %s TO %s%s',
      v_grant.right, v_table, v_grant.grantee, CASE WHEN v_grant.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
    );
  END LOOP;
  EXECUTE format('DROP TABLE %s', v_old);
  EXECUTE format('ALTER TABLE %s OWNER TO %s', v_table, v_owner);
  -- An administrator who runs this would own the partitions, and the owner could no longer migrate the table.
  FOR v_number IN 0 .. v_partitions - 1 LOOP
    EXECUTE format('ALTER TABLE %s_p%s OWNER TO %s', v_table, lpad(v_number::text, 4, '0'), v_owner);
  END LOOP;
END
$partition$;
