/**
 * What suites need and not every machine has. Suites skip without it and print the reason; in CI they fail, so that no
 * suite is left out unnoticed.
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
 * Returns whether this process is root on Linux, which `purpose` requires.
 *
 * @throws in CI on Linux if it is not root. Other systems cannot run these tests, also in CI.
 */
export function isLinuxRoot(purpose: string): boolean {
  if (process.platform !== 'linux') console.warn(`skipped: ${purpose} requires Linux`);
  else if (process.getuid?.() !== 0) skipWithout(`${purpose} requires root`);
  else return true;
  return false;
}
