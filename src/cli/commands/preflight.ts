import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { cures } from "../../model/shared/cures.ts"
import { count, counted } from "../../model/shared/quantities.ts"
import { withoutRuntimes } from "../../replay/programs.ts"
import { CommandError } from "../internal/failure.ts"
import type { Group } from "../internal/findings.ts"
import { noLessThan } from "../internal/numbers.ts"
import { Output } from "../internal/Output.ts"
import type { Style } from "../internal/Output.ts"
import * as Preflight from "../internal/preflight.ts"
import * as Programs from "../internal/programs.ts"
import * as Store from "../internal/store.ts"
import { oneLine, table } from "../internal/table.ts"

export const preflight = Command.make("preflight", {
  module: Argument.String("module").pipe(
    Argument.withDescription("Module that exports the programs: JavaScript, or TypeScript that Node can load")
  ),
  name: Flag.String("name").pipe(
    Flag.withMetavar("<name>"),
    Flag.withDescription("Only instances of this orchestration"),
    Flag.optional
  ),
  id: Flag.String("id").pipe(
    Flag.withMetavar("<id>"),
    Flag.withDescription("Only this instance"),
    Flag.optional
  ),
  sample: Flag.Int("sample").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Replay at most so many of each definition, evenly chosen by their ids. Defaults to all"),
    noLessThan(1),
    Flag.optional
  ),
  ignoreUnserved: Flag.ChoiceWithValue("ignore-unserved", [["names", "names"], ["all", "all"]] as const).pipe(
    Flag.withMetavar("<what>"),
    Flag.withDescription(
      "Accept instances that the module does not serve: names, of orchestrations that it has in no version; all, also " +
        "of versions that it lacks"
    ),
    Flag.optional
  ),
  payloads: Flag.Boolean("payloads").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Show payloads, shortened, and what programs died of"),
    Flag.withDefault(false)
  )
}, (flags) => withoutRuntimes(run(flags))).pipe(
  Command.withShortDescription("Replay running instances with new code, and show what would block"),
  Command.withDescription(
    "Replay running instances with the programs that a module exports, before they are deployed, and show what would " +
      "block. It only reads. Exits with 5 if an instance would block, or if no program of the module runs it. The " +
      "module is imported, so it must not start a runtime."
  ),
  Command.withExamples([
    { command: "duroxide-prisma preflight ./dist/programs.js", description: "In CI, before a deploy" },
    {
      command: "duroxide-prisma preflight ./src/programs.ts --sample 200",
      description: "At most 200 instances of each definition"
    }
  ])
)

// internal

interface Flags {
  readonly module: string
  readonly name: Option.Option<string>
  readonly id: Option.Option<string>
  readonly sample: Option.Option<number>
  readonly ignoreUnserved: Option.Option<"names" | "all">
  readonly payloads: boolean
}

const run = Effect.fnUntraced(function*(flags: Flags) {
  const { answer, style } = yield* Output
  const { module, payloads } = flags
  if (Option.isSome(flags.name) && Option.isSome(flags.id)) {
    return yield* new CommandError({ code: "Usage", message: "give --name or --id, not both", exit: "usage" })
  }
  const programs = yield* Programs.load(module)
  const report = yield* Effect.provide(
    Preflight.run(programs, {
      name: Option.getOrUndefined(flags.name),
      instanceId: Option.getOrUndefined(flags.id),
      sample: Option.getOrUndefined(flags.sample),
      payloads
    }),
    Store.layer
  )
  const { block, fail } = report.findings.counts()
  const groups = report.findings.groups()
  const others = report.findings.others()
  const ignored = Option.getOrUndefined(flags.ignoreUnserved)
  const unserved = report.unserved.map((one) => ({
    ...one,
    ignored: ignored === "all" || ignored === "names" && !programs.hasName(one.orchestration),
    isDefined: programs.defines(one.orchestration, one.version)
  }))
  yield* answer({
    json: {
      module,
      programs: programs.names,
      running: report.running,
      replayed: report.replayed,
      notBegun: report.notBegun,
      fitBlocked: report.fitBlocked,
      wouldBlock: block,
      wouldFail: fail,
      findings: groups.map(({ diff, examples, instances, ...group }) => ({
        ...group,
        cure: cureOf(group.reason),
        instances,
        examples,
        diff
      })),
      otherFindings: others,
      unserved: unserved.map(({ ignored, instances, orchestration, version }) => ({
        orchestration,
        version,
        instances,
        ignored
      }))
    },
    text: [
      ...groups.flatMap((group) => [...shownGroup(group, style), ""]),
      ...(others === 0 ? [] : [`and ${counted(others, "instance")} with other problems`, ""]),
      ...(unserved.length === 0 ? [] : [
        ...table(unserved, [
          { title: "NOT SERVED", value: ({ orchestration }) => orchestration },
          { title: "VERSION", value: ({ version }) => version },
          { title: "INSTANCES", align: "right", value: ({ instances }) => count(instances) },
          ...(unserved.some((one) => noteOf(one) !== "") ? [{ title: "NOTE", value: noteOf }] : [])
        ], style),
        ""
      ]),
      Preflight.summaryOf(report, Option.isSome(flags.sample))
    ]
  })
  const problems = [
    ...(block === 0 ? [] : [`${counted(block, "instance would", "instances would")} block`]),
    ...(fail === 0 ? [] : [`${counted(fail, "instance would", "instances would")} fail`]),
    ...unservedProblem(unserved, module)
  ]
  if (problems.length > 0) {
    return yield* new CommandError({ code: "WouldNotContinue", message: problems.join("; "), exit: "unfit" })
  }
})

const unservedProblem = (
  unserved: ReadonlyArray<Preflight.Unserved & { readonly ignored: boolean }>,
  module: string
): ReadonlyArray<string> => {
  const instances = unserved.reduce((sum, one) => sum + (one.ignored ? 0 : one.instances), 0)
  return instances === 0 ? [] : [
    `${counted(instances, "instance has", "instances have")} no program in ${module}. If other processes run them, ` +
    "see --ignore-unserved"
  ]
}

const noteOf = ({ ignored, isDefined }: { readonly ignored: boolean; readonly isDefined: boolean }): string =>
  isDefined ? "exported without its program" : ignored ? "ignored" : ""

const cureOf = (reason: Group["reason"]): string =>
  reason === "Dies"
    ? "its program throws where the old one did not: the instance would fail. Correct it"
    : cures[reason]

const shownGroup = (group: Group, style: Style): ReadonlyArray<string> => {
  const { alreadyBlocked, defect, diff, examples, instances, orchestration, outcome, problem, reason, version } = group
  const ids = examples.map(({ instanceId }) => oneLine(instanceId)).join(", ")
  return [
    style.bold(`${oneLine(orchestration)} ${oneLine(version)}`) +
    `: ${counted(instances, "instance would", "instances would")} ${outcome}` +
    (alreadyBlocked === 0 ? "" : `, ${count(alreadyBlocked)} of them blocked already`),
    ...[`${reason}${placeOf(group)}: ${oneLine(problem)}`, ...(defect === null ? [] : [oneLine(defect)])].map((line) =>
      `  ${style.red(line)}`
    ),
    ...diff.map((line) => `    ${marked(line, style)}`),
    `  ${instances > examples.length ? "such as" : instances === 1 ? "instance" : "instances"} ${ids}`,
    `  ${cureOf(reason)}`
  ]
}

/** Where the problem does not say it. */
const placeOf = ({ examples: [first], problem }: Group): string =>
  first!.eventId === null || problem.startsWith("event ") ? "" : ` at event ${first!.eventId}`

const marked = (line: string, style: Style): string =>
  line.startsWith("-") ? style.red(line) : line.startsWith("+") ? style.green(line) : style.dim(line)
