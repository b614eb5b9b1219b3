-- Purpose: gives a route to rows that were written without one: by clients, by Duroxide, by hand.
-- Effect on running workers: none; rows of our own turns and results carry their route, and fire nothing.
CREATE TRIGGER dx_route_message BEFORE INSERT ON orchestrator_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_message();

CREATE TRIGGER dx_route_activity BEFORE INSERT ON worker_queue
  FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION dx_route_activity();
