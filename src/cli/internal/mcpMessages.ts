/**
 * The messages of MCP between a client and the server: one JSON value a line.
 *
 * The server gets well-formed messages alone, and ids that are ours: an id that a client uses twice would end it. What
 * is not a message, comes too early, or repeats the id of a request without an answer gets an error.
 */
import * as Predicate from "effect/Predicate"

/** Characters of one message. */
const maxMessage = 1_000_000

/** The only version with arrays of messages. */
const versionWithBatches = "2025-03-26"

type Id = string | number
type Message = Readonly<Record<string, unknown>>

export interface Messages {
  /** The lines for the server, each with its end. */
  readonly toServer: (pieces: AsyncIterable<string>) => AsyncGenerator<string>
  /** Whole lines of the server. */
  readonly fromServer: (lines: string) => void
}

/** Both directions of one connection; `write` sends text to the client. */
export const make = (write: (text: string) => void): Messages => {
  /** Ids that the client gave to requests without an answer, by ours. */
  const open = new Map<number, Id>()
  /** Requests to initialize without an answer: what a client sends behind one is passed on. */
  const initializing = new Set<number>()
  let lastId = 0
  let isInitialized = false
  let hasBatches = false

  const send = (message: unknown) => write(`${JSON.stringify(message)}\n`)
  const refuse = (problem: string, id: Id | null = null, code = invalidRequest) => {
    send({ jsonrpc: "2.0", id, error: { code, message: problem } })
    return undefined
  }
  const oursOf = (id: unknown) => [...open].find(([, theirs]) => theirs === id)?.[0]

  /** A message for the server; undefined if it ends here. */
  const checked = (message: unknown): Message | undefined => {
    if (!isObject(message)) return refuse("the message is not an object")
    // The server asks the client nothing.
    if (!("method" in message) && ("result" in message || "error" in message)) return undefined
    const { id, method, params } = message
    const isRequest = "id" in message
    if (isRequest && !isId(id)) return refuse("the id must be a text or a number")
    if (typeof method !== "string") return refuse("method must be a text", isId(id) ? id : null)
    const fields = { jsonrpc: "2.0", method, ...(params !== undefined && { params }) }
    if (!isId(id)) return method === "notifications/cancelled" ? cancellation(fields, params) : fields
    if (oursOf(id) !== undefined) return refuse(`the request with the id ${JSON.stringify(id)} has no answer yet`, id)
    if (method !== "initialize" && !isInitialized && initializing.size === 0) {
      if (method !== "ping") return refuse("the first request must be initialize", id)
      send({ jsonrpc: "2.0", id, result: {} })
      return undefined
    }
    const ours = ++lastId
    open.set(ours, id)
    if (method === "initialize") initializing.add(ours)
    return { ...fields, id: ours }
  }
  /** A cancelled request has no answer, and its id is free. */
  const cancellation = (fields: Message, params: unknown) => {
    const ours = isObject(params) ? oursOf(params["requestId"]) : undefined
    if (ours === undefined) return undefined
    open.delete(ours)
    return { ...fields, params: { ...(params as Message), requestId: ours } }
  }

  const lineOf = (line: string): string | undefined => {
    if (line.trim() === "") return undefined
    const parsed = parse(line)
    if (parsed === undefined) return refuse("the message is not JSON", null, parseError)
    const { value } = parsed
    if (!Array.isArray(value)) return lineWith(checked(value))
    if (!hasBatches) return refuse(`arrays of messages exist in version ${versionWithBatches} only`)
    if (value.length === 0) return refuse("the array has no message")
    const messages = value.map(checked).filter((message) => message !== undefined)
    return messages.length === 0 ? undefined : lineWith(messages)
  }

  /** A message with the id of the client; undefined if the client has cancelled its request. */
  const answered = (message: unknown): unknown => {
    if (!isObject(message) || "method" in message || typeof message["id"] !== "number") return message
    const ours = message["id"]
    const theirs = open.get(ours)
    if (theirs === undefined) return undefined
    open.delete(ours)
    if (initializing.delete(ours) && "result" in message) {
      isInitialized = true
      hasBatches = isObject(message["result"]) && message["result"]["protocolVersion"] === versionWithBatches
    }
    return { ...message, id: theirs }
  }

  return {
    toServer: async function*(pieces) {
      for await (const line of linesOf(pieces)) {
        const message = line === tooLong ? refuse(`a message has more than ${maxMessage} characters`) : lineOf(line)
        if (message !== undefined) yield message
      }
    },
    fromServer: (lines) => {
      for (const line of lines.split("\n")) {
        if (line === "") continue
        const value: unknown = JSON.parse(line)
        const message = Array.isArray(value)
          ? value.map(answered).filter((one) => one !== undefined)
          : answered(value)
        if (message !== undefined) send(message)
      }
    }
  }
}

// internal

const invalidRequest = -32_600
const parseError = -32_700

const isObject = (value: unknown): value is Message => Predicate.isObject(value) && !Array.isArray(value)

const isId = (value: unknown): value is Id => typeof value === "string" || typeof value === "number"

const lineWith = (message: unknown) => message === undefined ? undefined : `${JSON.stringify(message)}\n`

const parse = (line: string): { readonly value: unknown } | undefined => {
  try {
    return { value: JSON.parse(line) }
  } catch {
    return undefined
  }
}

const tooLong = Symbol("too long")

/** The lines that have ended; a line that is too long is dropped while it comes. */
async function* linesOf(pieces: AsyncIterable<string>): AsyncGenerator<string | typeof tooLong> {
  let line: string | typeof tooLong = ""
  for await (const piece of pieces) {
    for (const [index, part] of piece.split("\n").entries()) {
      if (index > 0) {
        yield line
        line = ""
      }
      line = line === tooLong || line.length + part.length > maxMessage ? tooLong : line + part
    }
  }
}
