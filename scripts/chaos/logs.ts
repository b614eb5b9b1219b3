/**
 * Reads the notes that the processes of a run wrote to files.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import path from "node:path"

/** A line of a client. `sender` is the process. */
export interface ClientLine {
  readonly at: number
  readonly sender: string
  readonly event: "call" | "acknowledged" | "failed"
  readonly call: "start" | "cancel" | "send" | "close" | "raise" | "ping" | "task" | "order" | "noOrder"
  /** Id of an instance, a process or an order, or the label of a task. */
  readonly id: string
  readonly program?: "Flow" | "Box" | "Launcher" | "Approval" | "Errand" | "Pill" | "TurnPill"
  /** Whether the task has its label as its key. */
  readonly key?: boolean
  /** What a ping asks. */
  readonly part?: "runtime" | "tasks"
  readonly payload?: unknown
  readonly letter?: string
  readonly message?: string
}

/** A line of a worker. */
export type EffectLine =
  & { readonly at: number; readonly pid: number }
  & (
    | {
      readonly event: "begin" | "end"
      readonly key: string
      readonly activity: string
      readonly instance: string
      /** From 1; a process that was suspended may begin an earlier delivery after a later one. */
      readonly delivery: number
      readonly payload: unknown
    }
    | { readonly event: "block"; readonly ms: number }
    | TaskRun
    | { readonly event: "delivered"; readonly order: string }
  )

/** A handler of a task that began or ended. */
export interface TaskRun {
  readonly event: "taskBegin" | "taskEnd"
  /** Id of the task. */
  readonly task: string
  readonly name: string
  readonly label: string
  readonly attempt: number
}

export const effectsFile = (directory: string) => path.join(directory, "effects.jsonl")

export const clientFile = (directory: string, sender: string) => path.join(directory, `client-${sender}.jsonl`)

export const readClient = (directory: string, sender: string): ReadonlyArray<ClientLine> =>
  readLines(clientFile(directory, sender)).map((line) => ({ ...(line as Omit<ClientLine, "sender">), sender }))

/** Lines of all clients, each in the order of its calls. */
export const readClients = (directory: string): ReadonlyArray<ClientLine> =>
  readdirSync(directory).flatMap((file) => {
    const sender = /^client-(.*)\.jsonl$/.exec(file)?.[1]
    return sender === undefined ? [] : readClient(directory, sender)
  })

export const readEffects = (directory: string) => readLines(effectsFile(directory)) as ReadonlyArray<EffectLine>

/** The boxes a client may keep writing to: certainly begun, and never asked to close. */
export const openBoxes = (lines: ReadonlyArray<ClientLine>): ReadonlyArray<string> => {
  const closed = new Set(lines.filter(({ call }) => call === "close").map(({ id }) => id))
  return lines.filter(({ event }) => event === "acknowledged").flatMap(boxOf).filter((id) => !closed.has(id))
}

/** The box that a start leads to. */
export const boxOf = ({ call, id, payload, program }: ClientLine): ReadonlyArray<string> =>
  call !== "start" ? [] : program === "Box" ? [id] : program === "Launcher" ? [payload as string] : []

const readLines = (file: string): ReadonlyArray<unknown> =>
  existsSync(file)
    ? readFileSync(file, "utf8").split("\n").filter((line) => line !== "").map((line) => JSON.parse(line) as unknown)
    : []
