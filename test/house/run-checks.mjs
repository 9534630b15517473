// Every check of package.json, `check:*`, two at a time, the longest first. What one says is shown when it has ended;
// one that fails fails the run, and hides no other.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';

const { scripts } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const rest = Object.keys(scripts)
  .filter((name) => name.startsWith('check:'))
  .values();

async function run() {
  for (const name of rest) {
    const child = spawn('npm', ['run', '--silent', name], { stdio: ['ignore', 'pipe', 'pipe'] });
    const said = [];
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => said.push(chunk));
    const code = await new Promise((resolve) => {
      child.on('error', (error) => {
        said.push(`${error.message}\n`);
        resolve(1);
      });
      child.on('close', (code) => resolve(code ?? 1));
    });
    process.stdout.write(Buffer.concat(said.map((chunk) => Buffer.from(chunk))));
    if (code !== 0) {
      console.error(`${name} failed`);
      process.exitCode = 1;
    }
  }
}

await Promise.all([run(), run()]);
