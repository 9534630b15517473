/**
 * What suites need and not every machine has. Suites skip without it and print the reason. If a program is missing, they
 * fail in CI, so that no suite is left out unnoticed.
 */
export function isCi({ CI = '' }: NodeJS.ProcessEnv = process.env): boolean {
  return /^(true|1|yes|on)$/i.test(CI.trim());
}

/**
 * Prints why tests are skipped.
 *
 * @throws in CI.
 */
export function skipWithout(reason: string): void {
  if (isCi()) throw new Error(reason);
  console.warn(`skipped: ${reason}`);
}

/**
 * Returns whether this process is root on Linux, which `purpose` requires. Prints what is skipped otherwise, also in CI, whose
 * user is often not root.
 */
export function isLinuxRoot(purpose: string): boolean {
  const isLinux = process.platform === 'linux';
  if (isLinux && process.getuid?.() === 0) return true;
  console.warn(`skipped: ${purpose} requires ${isLinux ? 'root' : 'Linux'}`);
  return false;
}
