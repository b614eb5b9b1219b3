/** What only `ui` needs, in one module, so that the other commands do not load it. */
export * as Dashboard from "../../dashboard/Dashboard.ts"
export { serve } from "./httpServer.ts"
