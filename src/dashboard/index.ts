/**
 * The dashboard for operators.
 *
 * @since 0.3.0
 */

/**
 * @since 0.3.0
 */
export * as Api from "./Api.ts"

/**
 * @since 0.3.0
 */
export * as Dashboard from "./Dashboard.ts"
