/**
 * Why a completion from outside is refused; `Completion` exports them.
 */
import * as Schema from "effect/Schema"

export class TokenInvalid extends Schema.TaggedError<TokenInvalid>("duroxide-prisma/recipes/Completion/TokenInvalid")(
  "TokenInvalid",
  {},
  { httpApiStatus: 401 }
) {
  override get message() {
    return "the token is not valid: it was changed, its key is no longer known, or it is for another application"
  }
}

export class AlreadyCompleted
  extends Schema.TaggedError<AlreadyCompleted>("duroxide-prisma/recipes/Completion/AlreadyCompleted")(
    "AlreadyCompleted",
    { activityName: Schema.String },
    { httpApiStatus: 409 }
  )
{
  override get message() {
    return `this call of activity "${this.activityName}" has ended by another completion`
  }
}

export class CompletionExpired
  extends Schema.TaggedError<CompletionExpired>("duroxide-prisma/recipes/Completion/CompletionExpired")(
    "CompletionExpired",
    {
      activityName: Schema.String,
      /** Milliseconds since the Unix epoch. */
      expiresAtMs: Schema.Number
    },
    { httpApiStatus: 410 }
  )
{
  override get message() {
    return `this call of activity "${this.activityName}" has expired at ${new Date(this.expiresAtMs).toISOString()}`
  }
}

export class NotAwaited extends Schema.TaggedError<NotAwaited>("duroxide-prisma/recipes/Completion/NotAwaited")(
  "NotAwaited",
  { activityName: Schema.String },
  { httpApiStatus: 410 }
) {
  override get message() {
    return `this call of activity "${this.activityName}" is no longer awaited: its instance has ended or moved on`
  }
}
