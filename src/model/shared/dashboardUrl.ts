/**
 * Where an instance can be looked at: the address of its page in a dashboard, for log lines and spans.
 */
import * as Context from "effect/Context"

/** Where a dashboard is mounted, without a slash at the end; undefined without a dashboard. */
export const DashboardUrl: Context.Reference<string | undefined> = Context.Reference<string | undefined>(
  "duroxide-prisma/model/DashboardUrl",
  { defaultValue: () => undefined }
)

/** What the address of a dashboard may be; completes "must be …". */
export const allowed = "an absolute http or https URL without credentials, query and fragment"

/** The address without a slash at the end; undefined if it cannot be the address of a dashboard. */
export const read = (text: string): string | undefined => {
  // A parser accepts more than is meant: `https:shop.example`, a path with spaces.
  if (!/^https?:\/\/[^\s\\/?#@][^\s\\?#]*$/i.test(text) || !URL.canParse(text)) return undefined
  const { href, password, username } = new URL(text)
  return username === "" && password === "" ? href.replace(/\/+$/, "") : undefined
}

/** The address of the page of an instance. */
export const ofInstance = (dashboardUrl: string, instanceId: string): string =>
  `${dashboardUrl}/#/instances/${encodeURIComponent(instanceId)}`

/** The address of the page of an instance; undefined, and not computed, where no dashboard is configured. */
export const inContext = (context: Context.Context<never>, instanceId: string): string | undefined => {
  const dashboardUrl = Context.get(context, DashboardUrl)
  return dashboardUrl === undefined ? undefined : ofInstance(dashboardUrl, instanceId)
}
