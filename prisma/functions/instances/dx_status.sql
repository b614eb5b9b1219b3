-- Returns the status of an instance, as the column instances.status has it: Running, Completed, Failed or Cancelled.
-- Null for null.
--
-- An execution has no status for cancelled: it is Failed, with an output that says so. One that continues as a new one
-- has not ended its instance.
CREATE OR REPLACE FUNCTION dx_status(
  p_status text,                   -- of the current execution
  p_output text
) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_status = 'ContinuedAsNew' THEN 'Running'
    WHEN p_status = 'Failed' AND starts_with(p_output, 'canceled: ') THEN 'Cancelled'
    ELSE p_status
  END
$$;
