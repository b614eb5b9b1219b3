/**
 * The last guard before standard error: whatever a message quotes, passwords of URLs do not leave the process.
 */
export const withoutPasswords = (text: string): string =>
  text
    // Up to the last "@": a password that is not percent-encoded may have one.
    .replace(/(\w+:\/\/)[^\s"'`]*@/g, "$1***@")
    .replace(/([?&]password=)[^&\s"'`]+/gi, "$1***")
