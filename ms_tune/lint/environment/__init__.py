"""Settings of the environment, as the keys of a config: ``.env`` files, exports of shell scripts, the variables of this process."""
