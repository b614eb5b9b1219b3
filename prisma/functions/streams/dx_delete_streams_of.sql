-- Deletes the streams of these instances, with their chunks. A part of dx_delete_instances, because a server may lack
-- triggers for statements, and of the trigger dx_delete_streams, because other programs delete instances, too.
--
-- Bound: their streams. Locks: rows of progress_streams by instance and name. Who appends to one of them has locked it,
-- or the row of the instance: so no chunk outlives its instance.
CREATE OR REPLACE FUNCTION dx_delete_streams_of(p_instance_ids text[]) RETURNS void LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_instance text;
  v_ids bigint[] := '{}';
BEGIN
  -- Most have none. One that gets its first stream now has locked the row of its instance.
  FOR v_instance IN
    SELECT DISTINCT s.instance_id COLLATE "C" FROM progress_streams AS s WHERE s.instance_id = ANY (p_instance_ids)
    ORDER BY 1
  LOOP
    v_ids := v_ids || ARRAY(
      SELECT s.id FROM progress_streams AS s WHERE s.instance_id = v_instance
      ORDER BY s.name COLLATE "C" FOR UPDATE
    );
  END LOOP;
  IF v_ids <> '{}' THEN
    DELETE FROM progress_streams AS s WHERE s.id = ANY (v_ids);
    DELETE FROM progress_chunks AS c WHERE c.stream_id = ANY (v_ids);
  END IF;
END
$$;
