-- Purpose: gives stored events the name of their type; duroxide-pg writes 'Event' into every row.
-- Effect on running workers: none waits, for nothing updates an event. It writes each such row of history once.

UPDATE history
SET event_type = substring(event_data FROM '"type":"(\w+)"')
WHERE event_type = 'Event'
  AND event_data ~ '"type":"\w+"';
