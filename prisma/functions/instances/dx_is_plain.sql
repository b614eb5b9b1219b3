-- Whether a turn leaves nothing but events, activities that any process may run, and perhaps its end.
CREATE OR REPLACE FUNCTION dx_is_plain(
  p_turn jsonb,                    -- of dx_store_turns, with appends
  p_worker_items jsonb             -- the same, of this turn
) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
  SELECT COALESCE((p_turn ->> 'appends')::boolean, false)
    AND p_turn ->> 'parent_instance_id' IS NULL
    AND NOT p_turn ?| '{next_version,sets_custom_status,cancelled_timers,requeued,left_ids}'
    AND (
      p_worker_items IS NULL
      OR (
        -- Where there are more, a set of rows is cheaper than row after row.
        jsonb_array_length(p_worker_items) <= 8
        AND NOT jsonb_path_exists(
          p_worker_items, '$[*] ? (@.session_id != null || @.tag != null || exists(@.served_by))'
        )
      )
    )
$$;
