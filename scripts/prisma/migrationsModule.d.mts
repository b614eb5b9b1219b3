export function writeModule(files?: { readonly migrations?: string; readonly module?: string }): void
