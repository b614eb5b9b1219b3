/**
 * The entry of all services: `node build/examples/lite/services/main.js <service>`. Settings come from the environment;
 * SIGTERM stops a service in good order.
 */
import { Effect, Runtime, type Scope } from "effect"

interface Service {
  readonly main: Effect.Effect<void, unknown, Scope.Scope>
}

const services: Readonly<Record<string, () => Promise<Service>>> = {
  setup: () => import("./setup.ts"),
  gateway: () => import("./gateway.ts"),
  dispatcher: () => import("./dispatcher.ts"),
  platform_worker: () => import("./platformWorker.ts"),
  query_service: () => import("./queryService.ts"),
  delivery_service: () => import("./deliveryService.ts"),
  scheduler: () => import("./scheduler.ts"),
  rpc_egress_gateway: () => import("./rpcEgressGateway.ts"),
  client: () => import("./client.ts")
}

const name = process.argv[2] ?? ""
const load = services[name]
if (load === undefined) {
  console.error(`usage: main.js <service>\nservices: ${Object.keys(services).join(", ")}`)
  process.exit(2)
}

const run = Runtime.makeRunMain(({ fiber, teardown }) => {
  const stop = () => fiber.interruptUnsafe()
  process.once("SIGINT", stop).once("SIGTERM", stop)
  process.once("disconnect", stop) // started by another Node process, which has gone
  // A requested stop is not a failure: an interruption exits with 0 instead of 130.
  fiber.addObserver((exit) => teardown(exit, (code) => process.exit(code === 130 ? 0 : code)))
})

const { main } = await load()
run(main.pipe(Effect.scoped, Effect.annotateLogs({ service: name })))
