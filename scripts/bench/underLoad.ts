/**
 * Runs S8 on the database of its first argument until its parent ends; the second says whether processes wake each
 * other.
 */
import { plainLoad } from "./contender.ts"
import { open } from "./ours.ts"

const [, , url = "", pollMs = "null"] = process.argv
const contender = await open({
  url,
  processName: "underLoad",
  load: { ...plainLoad, pollMs: JSON.parse(pollMs) as number | null }
})
const ending = new AbortController()
let started = 0
const loop = async () => {
  while (!ending.signal.aborted) await contender.execute(`load-${process.pid}-${++started}`)
}
const loops = Array.from({ length: plainLoad.inFlight }, loop)
process.send!("ready")
process.once("disconnect", () => {
  ending.abort()
  void Promise.all(loops).then(() => contender.close()).then(() => process.exit())
})
