import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';

/** A real repository, served by git over HTTP on loopback. */
export interface GitServer {
  /** Temporary folder of the server. */
  readonly root: string;
  /** Address of the repository. Below `/private` instead of `/`, it needs an Authorization header. */
  readonly url: string;
  readonly privateUrl: string;
  /** Authorization headers of requests, in order. */
  readonly authorizations: (string | undefined)[];
  /** Commits files to the branch main. @returns the id of the commit. */
  commit(files: Readonly<Record<string, string>>): string;
  tag(name: string, commit: string): void;
  close(): void;
}

export async function startGitServer(): Promise<GitServer> {
  const root = mkdtempSync(join(tmpdir(), 'runlake-git-'));
  const work = join(root, 'work');
  const bare = join(root, 'repo.git');
  const environment = { PATH: process.env.PATH, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_NOSYSTEM: '1' };
  const run = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8', env: environment }).trim();
  const git = (...args: string[]) => run('-C', work, '-c', 'user.name=t', '-c', 'user.email=t@example.com', ...args);
  mkdirSync(work);
  git('init', '--quiet', '--initial-branch=main');
  run('init', '--quiet', '--bare', '--initial-branch=main', bare);
  run('-C', bare, 'config', 'uploadpack.allowAnySHA1InWant', 'true');
  const authorizations: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://localhost');
    authorizations.push(request.headers.authorization);
    if (pathname.startsWith('/private/') && request.headers.authorization === undefined) {
      response.writeHead(401, { 'www-authenticate': 'Basic' }).end();
      return;
    }
    const backend = spawn('git', ['http-backend'], {
      env: {
        PATH: process.env.PATH,
        GIT_PROJECT_ROOT: root,
        GIT_HTTP_EXPORT_ALL: '1',
        PATH_INFO: pathname.replace('/private', ''),
        QUERY_STRING: searchParams.toString(),
        REQUEST_METHOD: request.method,
        CONTENT_TYPE: request.headers['content-type'] ?? '',
        GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
        REMOTE_ADDR: '127.0.0.1',
      },
    });
    request.pipe(backend.stdin);
    const chunks: Buffer[] = [];
    backend.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    backend.once('close', () => {
      const answer = Buffer.concat(chunks);
      const end = answer.indexOf('\r\n\r\n');
      const lines = answer.subarray(0, end).toString().split('\r\n');
      const status = Number(/^Status: (\d+)/.exec(lines.find((line) => line.startsWith('Status:')) ?? '')?.[1] ?? 200);
      for (const line of lines) {
        const [name = '', value = ''] = line.split(': ');
        if (name !== 'Status') response.setHeader(name, value);
      }
      response.writeHead(status).end(answer.subarray(end + 4));
    });
  });
  const address = `http://127.0.0.1:${await listenOnLoopback(server)}`;
  return {
    root,
    url: `${address}/repo.git`,
    privateUrl: `${address}/private/repo.git`,
    authorizations,
    commit(files) {
      for (const [path, text] of Object.entries(files)) {
        mkdirSync(dirname(join(work, path)), { recursive: true });
        writeFileSync(join(work, path), text);
      }
      git('add', '.');
      git('commit', '--quiet', '-m', 'change');
      git('push', '--quiet', bare, 'main');
      return git('rev-parse', 'HEAD');
    },
    tag(name, commit) {
      git('tag', name, commit);
      git('push', '--quiet', bare, name);
    },
    close() {
      server.close();
      rmSync(root, { recursive: true, force: true });
    },
  };
}
