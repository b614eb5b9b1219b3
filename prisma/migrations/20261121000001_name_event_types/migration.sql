-- Purpose: sets the type of stored events; duroxide-pg writes 'Event' into every row.
-- Effect on running workers: none, as they never update events. The migration updates each such row of history once.

UPDATE history
SET event_type = substring(event_data FROM '"type":"(\w+)"')
WHERE event_type = 'Event'
  AND event_data ~ '"type":"\w+"';
