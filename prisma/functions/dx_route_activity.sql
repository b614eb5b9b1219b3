-- Trigger: gives an activity its route, its name and tag, where its writer did not.
--
-- Bound: the text of the activity. Locks: none.
CREATE OR REPLACE FUNCTION dx_route_activity()
RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
  NEW.route := COALESCE(
    NEW.work_item::jsonb -> 'ActivityExecute' ->> 'name' || COALESCE(' #' || dx_tag(NEW.tag), ''),
    ''
  );
  IF octet_length(NEW.route) + COALESCE(octet_length(NEW.session_id), 0) > 2400 THEN
    -- An index entry takes 2,704 bytes: no insert of others fails for it, and no worker of ours has such names.
    NEW.route := '';
  END IF;
  RETURN NEW;
EXCEPTION
  -- Text that is not JSON: an insert never fails for it.
  WHEN data_exception THEN
    RETURN NEW;
END
$$;
