/**
 * The child process that owns the Postgres server, so that Postgres never outlives Runlake. When the parent ends for
 * any reason, the IPC channel closes and the child stops the server. Arguments: path of `postgres`, its data folder,
 * the user id and the group id to run as (if empty, those of this process), followed by the arguments of the server.
 *
 * The child first requests a fast shutdown (SIGINT). If the server is still running, the child sends SIGQUIT (immediate
 * shutdown) after 5 s and SIGKILL after 8 s. The child exits when the server has exited.
 */
import { spawn } from 'node:child_process';

const [binary = '', cwd = '', uid = '', gid = '', ...args] = process.argv.slice(2);
const server = spawn(binary, args, {
  cwd,
  env: { LC_ALL: 'C', TZ: 'UTC' },
  stdio: ['ignore', 'ignore', 'inherit'],
  ...(uid === '' ? {} : { uid: Number(uid), gid: Number(gid) }),
});
server.on('error', (error) => {
  process.stderr.write(`FATAL: ${error.message}\n`, () => process.exit(1));
});
server.on('exit', (code) => process.exit(code ?? 1));

let isEnding = false;
function end(): void {
  if (isEnding) return;
  isEnding = true;
  server.kill('SIGINT');
  setTimeout(() => server.kill('SIGQUIT'), 5_000);
  setTimeout(() => server.kill('SIGKILL'), 8_000);
}
process.on('disconnect', end);
process.on('SIGTERM', end);
process.on('SIGINT', () => {});
if (!process.connected) end();
