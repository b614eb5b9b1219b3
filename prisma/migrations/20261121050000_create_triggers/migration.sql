-- Purpose: sets the route of rows that were inserted without one: by clients, by Duroxide, by hand.
-- Effect on running workers: none; rows of our own turns and results have their route, and fire no trigger.
CREATE TRIGGER dx_route_message BEFORE INSERT ON orchestrator_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_message();

CREATE TRIGGER dx_route_activity BEFORE INSERT ON worker_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_activity();
