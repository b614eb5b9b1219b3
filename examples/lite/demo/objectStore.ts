/**
 * An object store and, for the profile `sqs`, queues: fauxqs from npm speaks the protocols of S3 and SQS, and keeps all in
 * memory. For development only.
 */
import { startFauxqs } from "fauxqs"

const server = await startFauxqs({ port: 0, host: "127.0.0.1", logger: false })

const stop = () => void server.stop().then(() => process.exit(0))
process.once("SIGINT", stop).once("SIGTERM", stop).once("disconnect", stop)
process.send?.({ port: server.port })
