/**
 * Orchestrations of duroxide in Rust, as its Node binding runs them: Rust asks JavaScript for the next step of a
 * generator. What is yielded says what to schedule, and the answer is its outcome.
 */
import { createRequire } from "node:module"

export type Steps = Generator<object, unknown, any>

/** Inputs are parsed JSON. What is thrown is the failure. */
export type Orchestrations = Readonly<Record<string, (input: any, instanceId: string) => Steps>>

export interface Native {
  readonly JsPostgresProvider: { connectWithSchema(url: string, schema: string): Promise<unknown> }
  readonly JsSqliteProvider: { open(url: string): Promise<unknown> }
  readonly JsRuntime: { new(provider: unknown, settings: object): Runtime; fromPostgres: RuntimeOf }
  orchestrationSetCustomStatus(instanceId: string, status: string): void
  orchestrationSetValue(instanceId: string, key: string, value: string): void
  orchestrationClearValue(instanceId: string, key: string): void
  orchestrationClearAllValues(instanceId: string): void
}

type RuntimeOf = (provider: unknown, settings: object) => Runtime

interface Runtime {
  setGeneratorDriver(
    create: (payload: string) => string,
    next: (payload: string) => string,
    dispose: (id: string) => string
  ): void
  registerActivity(name: string, run: (payload: string) => Promise<string>): void
  registerOrchestration(name: string): void
  start(): Promise<void>
  shutdown(timeoutMs: number): Promise<void>
}

export const load = (binary: string) => createRequire(import.meta.url)(binary) as Native

/** Hands the programs to a runtime: as its steps, and by name where `serves` does not choose. */
export const register = (
  runtime: Runtime,
  orchestrations: Orchestrations,
  serves: ReadonlyArray<string> = Object.keys(orchestrations)
) => {
  const generators = new Map<number, Steps>()
  let lastId = 0
  const drive = (id: number, step: () => IteratorResult<object>): string => {
    try {
      const { done, value } = step()
      if (done !== true) return JSON.stringify({ status: "yielded", generatorId: id, task: value })
      generators.delete(id)
      return JSON.stringify({ status: "completed", output: JSON.stringify(value ?? null) })
    } catch (error) {
      generators.delete(id)
      return JSON.stringify({ status: "error", message: error instanceof Error ? error.message : error })
    }
  }
  runtime.setGeneratorDriver(
    (payload) => {
      const { ctxInfo, input } = JSON.parse(payload) as {
        readonly ctxInfo: { readonly instanceId: string; readonly orchestrationName: string }
        readonly input: string
      }
      const id = ++lastId
      return drive(id, () => {
        const steps = orchestrations[ctxInfo.orchestrationName]!(JSON.parse(input), ctxInfo.instanceId)
        generators.set(id, steps)
        return steps.next()
      })
    },
    (payload) => {
      const { generatorId, isError, result } = JSON.parse(payload) as {
        readonly generatorId: number
        readonly isError: boolean
        readonly result: string
      }
      const steps = generators.get(generatorId)!
      const answer = parsed(result)
      return drive(generatorId, () => isError ? steps.throw(new Error(String(answer))) : steps.next(answer))
    },
    (id) => {
      generators.delete(Number(id))
      return "ok"
    }
  )
  for (const name of serves) runtime.registerOrchestration(name)
}

/** What an answer holds: its JSON, when it was not parsed on the way. */
export const parsed = (answer: unknown): unknown => {
  if (typeof answer !== "string") return answer
  try {
    return JSON.parse(answer)
  } catch {
    return answer
  }
}

/** The instance and the input of a call of an activity: a line of JSON about the call, then the input. */
export const callOf = (payload: string): { readonly instanceId: string; readonly input: string } => {
  const end = payload.indexOf("\n")
  const { instanceId } = JSON.parse(payload.slice(0, end)) as { readonly instanceId: string }
  return { instanceId, input: payload.slice(end + 1) }
}
