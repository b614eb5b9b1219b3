/** Stands in for a collector of traces: a process that reads what it is sent, and answers. Its parent gets its port. */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

const server = createServer((request, response) => {
  request.on("end", () => response.setHeader("content-type", "application/json").end("{}")).resume()
})
server.listen(0, "127.0.0.1", () => process.send!((server.address() as AddressInfo).port))
process.once("disconnect", () => process.exit())
