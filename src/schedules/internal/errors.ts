import * as Schema from "effect/Schema"

export class ScheduleNotFound
  extends Schema.TaggedError<ScheduleNotFound>("duroxide-prisma/schedules/ScheduleNotFound")(
    "ScheduleNotFound",
    { schedule: Schema.String }
  )
{
  override get message() {
    return `schedule ${this.schedule} not found`
  }
}

export class ScheduleExists extends Schema.TaggedError<ScheduleExists>("duroxide-prisma/schedules/ScheduleExists")(
  "ScheduleExists",
  { schedule: Schema.String }
) {
  override get message() {
    return `schedule ${this.schedule} exists already and differs; replace it with ifExists: "replace"`
  }
}
