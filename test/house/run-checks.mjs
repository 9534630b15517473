// Runs every `check:*` script of package.json, two at a time, longest first. The output of a check is printed when it
// has ended; a failed check fails the run, and the others still run.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';

const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const rest = Object.keys(scripts)
  .filter((name) => name.startsWith('check:'))
  .values();

async function run() {
  for (const name of rest) {
    const child = spawn('npm', ['run', '--silent', name], { stdio: ['ignore', 'pipe', 'pipe'] });
    const output = [];
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => output.push(chunk));
    const code = await new Promise((resolve) => {
      child.on('error', (error) => {
        output.push(`${error.message}\n`);
        resolve(1);
      });
      child.on('close', (code) => resolve(code ?? 1));
    });
    process.stdout.write(Buffer.concat(output.map((chunk) => Buffer.from(chunk))));
    if (code !== 0) {
      console.error(`${name} failed`);
      process.exitCode = 1;
    }
  }
}

await Promise.all([run(), run()]);
