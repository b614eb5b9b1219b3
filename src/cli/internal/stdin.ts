import * as Context from "effect/Context"
import type { Io } from "./io.ts"

/** Standard input. */
export class Stdin extends Context.Service<Stdin, Io["stdin"]>()("duroxide-prisma/cli/Stdin") {}
