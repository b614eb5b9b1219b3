/**
 * The errors of a client.
 */
import * as Schema from "effect/Schema"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import { explain } from "../model/shared/explained.ts"

export {
  /**
   * A payload does not fit its Schema; nothing was sent.
   *
   * @category errors
   * @since 0.1.0
   */
  PayloadMismatch,
  /**
   * A payload is larger than 4 MiB of JSON text; nothing was sent.
   *
   * @category errors
   * @since 0.1.0
   */
  PayloadTooLarge
} from "../model/shared/payload.ts"

/**
 * The id is taken by a running or an ended instance; nothing was started.
 *
 * @category errors
 * @since 0.1.0
 */
export class InstanceAlreadyExists extends Schema.TaggedError<InstanceAlreadyExists>(
  "duroxide-prisma/Client/InstanceAlreadyExists"
)("InstanceAlreadyExists", { instanceId: Schema.String }) {
  override get message() {
    return `instance ${this.instanceId} exists already, and ifExists does not replace it; choose another id, or start it ` +
      `with ifExists: "ignore", or with "replaceEnded" if it has ended`
  }
}

/**
 * The instance was interrupted or terminated; `reason` is the one given for it.
 *
 * @category errors
 * @since 0.2.0
 */
export class InstanceCancelled
  extends Schema.TaggedError<InstanceCancelled>("duroxide-prisma/Client/InstanceCancelled")("InstanceCancelled", {
    instanceId: Schema.String,
    reason: Schema.String
  })
{
  override get message() {
    return `instance ${this.instanceId} was cancelled: ${this.reason}`
  }
}

/**
 * The instance ended without a typed result: its program died, its work was poison, or, with `onMismatch: "fail"` of
 * `RuntimeConfig`, its code did not match its history. `details` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class InstanceFailed
  extends Schema.TaggedError<InstanceFailed>("duroxide-prisma/Client/InstanceFailed")("InstanceFailed", {
    instanceId: Schema.String,
    details: ErrorDetails.ErrorDetails
  })
{
  override get message() {
    const { details } = this
    // The message of a poison failure is the payload, which is not shown, unless the runtime has set a text.
    const reason = details._tag === "Poison" && !/^[[{]/.test(details.message) ? `: ${details.message}` : ""
    return `instance ${this.instanceId} failed: ${explain(details)}${reason}`
  }
}

/**
 * The `timeout` of a wait was over: the instance had not ended, had no newer status, did not have the value, or had not
 * answered the request. It may not have been started at all. A running instance continues.
 *
 * @category errors
 * @since 0.1.0
 */
export class WaitTimeout extends Schema.TaggedError<WaitTimeout>("duroxide-prisma/Client/WaitTimeout")("WaitTimeout", {
  instanceId: Schema.String,
  /** Defaults to `end`. */
  waitedFor: Schema.optionalKey(Schema.Literals(["end", "status", "value", "answer"])),
  timeoutMs: Schema.Number,
  /**
   * How far a question has come. `NotStarted`: the id is unknown. `NotReceived`: no turn has read the question; the
   * instance may be paused or blocked, or wait for a slot of its limit, or no process serves it. `NotServed`: the
   * current execution has never waited for this request. `NotTaken`: the program is busy with other questions.
   * `NotAnswered`: the program has taken the question.
   */
  progress: Schema.optionalKey(
    Schema.Literals(["NotStarted", "NotReceived", "NotServed", "NotTaken", "NotAnswered"])
  ),
  /** The name of the request. */
  request: Schema.optionalKey(Schema.String)
}) {
  override get message() {
    if (this.request !== undefined) {
      const progress = this.progress === undefined ? "" : `: ${progressTexts[this.progress]}`
      return `instance ${this.instanceId} had not answered the request "${this.request}" after ` +
        `${this.timeoutMs} ms${progress}`
    }
    const missing = this.waitedFor === undefined || this.waitedFor === "end"
      ? "had not ended"
      : `did not have the ${this.waitedFor} waited for`
    return `instance ${this.instanceId} ${missing} after ${this.timeoutMs} ms; if it was started, it continues`
  }
}

/**
 * The instance has ended, so the status, value or answer waited for will not come. `Client.wait` returns how it has
 * ended.
 *
 * @category errors
 * @since 0.2.0
 */
export class InstanceEnded
  extends Schema.TaggedError<InstanceEnded>("duroxide-prisma/Client/InstanceEnded")("InstanceEnded", {
    instanceId: Schema.String,
    waitedFor: Schema.Literals(["status", "value", "answer"])
  })
{
  override get message() {
    return `instance ${this.instanceId} has ended without the ${this.waitedFor} waited for; wait returns its result`
  }
}

/**
 * The program took the question and could not answer it: the handler died, or its Schema refused the payload. `problem`
 * says which.
 *
 * @category errors
 * @since 0.3.0
 */
export class RequestFailed extends Schema.TaggedError<RequestFailed>("duroxide-prisma/Client/RequestFailed")(
  "RequestFailed",
  { instanceId: Schema.String, request: Schema.String, requestId: Schema.String, problem: Schema.String }
) {
  override get message() {
    return `request "${this.request}" failed at instance ${this.instanceId}: ${this.problem}`
  }
}

// internal

const progressTexts = {
  NotStarted: "there is no instance of this id",
  NotReceived:
    "no turn of the instance has read it; it may be paused or blocked, or wait for a slot of its limit, or no process serves it",
  NotServed: "its program has not waited for requests of this name in this execution",
  NotTaken: "its program has not come to it yet",
  NotAnswered: "its program has taken it, and not answered yet"
}
