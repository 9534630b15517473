// Reports an unsupported Node in one line, before npm prints a long error. The rule is that of `engines` in package.json.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
const isSupported = (major === 20 && minor >= 19) || (major === 22 && minor >= 13) || major >= 24;
if (!isSupported) {
  process.stderr.write(
    `Runlake requires Node 20 (20.19+), 22 (22.13+) or 24 and newer; this is ${process.versions.node}. See https://nodejs.org\n`,
  );
  process.exit(1);
}
