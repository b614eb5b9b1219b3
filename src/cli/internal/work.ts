/**
 * Columns of work that waits in the queues.
 */
import { count } from "../../model/shared/quantities.ts"
import type { Work } from "../../operating/work.ts"
import type { Style } from "./Output.ts"
import type { Column } from "./table.ts"

/** How many living processes serve it, and whether it is paused nevertheless. */
export const servedBy = (style: Style): Column<Pick<Work, "servedBy"> & { readonly paused: boolean }> => ({
  title: "SERVED BY",
  align: "right",
  value: ({ paused, servedBy }) => `${servedBy === null ? "-" : count(servedBy)}${paused ? ", paused" : ""}`,
  mark: ({ paused, servedBy }, text) => servedBy === 0 || paused ? style.red(text) : text
})
