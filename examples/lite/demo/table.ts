/**
 * The table at the end.
 */
import type { Report } from "./audit.ts"
import type { Source } from "./source.ts"
import type { Run } from "./story.ts"

export const table = (source: Source, run: Run, report: Report): string => {
  const rule = "-".repeat(84)
  const row = (name: string, value: string | number, note = "") =>
    `${name.padEnd(32)}${String(value).padStart(9)}  ${note}`.trimEnd()
  const counted = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`
  const number = (n: number) => n.toLocaleString("en-US")
  const sum = (of: "tasks" | "attempts") => report.tasks.reduce((total, task) => total + task[of], 0)
  return [
    rule,
    row(
      "records generated",
      number(source.records),
      `${(source.bytes / 1e6).toFixed(1)} MB of NDJSON, seed ${source.seed}`
    ),
    row("batches", source.batches.length, `${report.batches.twice} of them sent twice`),
    row("  committed", report.batches.committed, "once each"),
    rule,
    row("tasks", sum("tasks")),
    ...report.tasks.map(({ attempts, name, tasks }) => row(`  ${name}`, tasks, counted(attempts, "attempt"))),
    row("attempts", sum("attempts")),
    row("  lost", report.lost, "killed or silent for too long; another attempt followed"),
    row("  failed", report.failed, "and tried again"),
    row(
      "stale commits rejected",
      report.stale,
      `${counted(report.orphans, "file")} of such attempts, which no version refers to`
    ),
    row("outbox rows", report.outbox, "all sent"),
    rule,
    row(
      "records queried",
      number(run.summary.records),
      `${number(run.summary.distinct)} distinct, version ${run.version}`
    ),
    ...[...source.wattHours].map(([city, wattHours]) => row(`  ${city}`, number(wattHours), "Wh, as generated")),
    row("deliveries", run.deliveries.length, run.deliveries.join(", ")),
    row("Census tasks by cron", report.censuses.cron, "one every two seconds"),
    row("Census tasks by webhook", report.censuses.webhook, `though the webhook came ${run.webhooksSent} times`),
    rule,
    row("time", `${(run.elapsedMs / 1000).toFixed(1)} s`, "from the first batch to the last check"),
    rule
  ].join("\n")
}
